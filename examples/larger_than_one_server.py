"""A model that is larger than what one task may take of memory, on as many servers as it needs.

(ulimit -d 3600000; tfps run --workers 1 --ps 3 examples/larger_than_one_server.py)

`ulimit` gives no task more than that many KiB, the chief and the worker included, and each begins
with 1.3 GB, most of it for stacks of threads. The table and its slots take 2.6 GB, a third of them
on each server. With `--ps 1` the server cannot make them.
"""

import keras
import numpy as np

import tfps

ROWS, WIDTH, STEPS = 5_000_000, 64, 100


def main():
    strategy = tfps.ParameterServerStrategy(variable_partitioner=tfps.partitioners.Balanced())
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8,), dtype="int32"),
                keras.layers.Embedding(ROWS, WIDTH),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        # Only the rows of a batch are updated, on the servers, without a pass over the table.
        model.compile(tfps.optimizers.SparseUpdates(keras.optimizers.Adagrad(0.05)), "mse")
    random = np.random.default_rng(0)
    baskets = random.integers(0, ROWS, size=(64 * STEPS, 8)).astype("int32")
    prices = (baskets.mean(axis=1) / ROWS).astype("float32")
    history = model.fit(baskets, prices, batch_size=64, epochs=2, verbose=0)
    first, last = history.history["loss"]
    model_bytes = sum(view.size_bytes for view in strategy.plan.views)
    servers = len({view.server for view in strategy.plan.views})
    print(f"{model_bytes / 1e9:.1f} GB on {servers} servers; loss {first:.3f}, then {last:.3f}")
    print("predicted on the chief:", model.predict(baskets[:4], verbose=0).shape)


if __name__ == "__main__":
    main()
