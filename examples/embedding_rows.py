"""An embedding table by rows: only the rows of a batch travel, and only they are updated.

tfps run --workers 2 --ps 2 examples/embedding_rows.py

A plain Adam passes over the whole table for each update; in `SparseUpdates` it changes the rows
that the batch has looked up, and their slots. `python -m benchmarks rows` measures both by the size
of the table.
"""

import keras
import numpy as np

import tfps
from tfps.optimizers import SparseUpdates
from tfps.partitioners import RowModulo

ITEMS, WIDTH, STEPS = 200_000, 32, 100


def train(strategy, optimizer):
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8,), dtype="int32"),
                keras.layers.Embedding(ITEMS, WIDTH),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer, "mse")
    random = np.random.default_rng(0)
    baskets = random.zipf(1.3, size=(64 * STEPS, 8)).clip(1, ITEMS).astype("int32") - 1
    prices = np.log1p(baskets).mean(axis=1)
    before = strategy.stats()
    history = model.fit(baskets, prices, batch_size=64, epochs=1, verbose=0)
    stats = strategy.stats()
    moved = stats.bytes_pulled + stats.bytes_pushed - before.bytes_pulled - before.bytes_pushed
    name = type(optimizer).__name__
    print(f"{name:<14} {sum(stats.steps_per_s):.0f} steps/s, loss {history.history['loss'][0]:.2f}")
    print(f"{'':<14} {moved / STEPS / 1024:.0f} KiB moved for each step")


def main():
    strategy = tfps.ParameterServerStrategy(variable_partitioner=RowModulo())
    train(strategy, keras.optimizers.Adam(0.01))
    train(strategy, SparseUpdates(keras.optimizers.Adam(0.01)))
    print(f"the whole table: {ITEMS * WIDTH * 4 / 1024:,.0f} KiB")


if __name__ == "__main__":
    main()
