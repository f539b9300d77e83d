"""Keep tables on parameter servers, and train dense layers by all-reduce between the workers.

tfps run --workers 2 --ps 2 examples/all_reduce.py

Job files say the same with policy = "all_reduce" and rules = { "embedding" = "least_loaded" } in
[placement].
"""

import keras
import numpy as np

import tfps
from tfps.placement import AllReduce, ByPath

USERS, ITEMS, WIDTH = 100_000, 20_000, 16


def make_model():
    """A model of two tables, of which a step needs few rows, and of dense layers."""
    inputs = [keras.Input((1,), dtype="int32", name=name) for name in ("user", "item")]
    rows = [
        keras.layers.Embedding(count, WIDTH, name=f"embedding_of_{name}")(ids)
        for count, name, ids in zip((USERS, ITEMS), ("users", "items"), inputs, strict=True)
    ]
    hidden = keras.layers.Flatten()(keras.layers.Concatenate()(rows))
    for units in (256, 128):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    return model


def main():
    strategy = tfps.ParameterServerStrategy(
        consistency=tfps.Synchronous(),
        placement=ByPath({"embedding": "least_loaded"}, otherwise=AllReduce()),
    )
    with strategy.scope():
        model = make_model()

    random = np.random.default_rng(0)
    users, items = (random.integers(0, count, size=(6400, 1)) for count in (USERS, ITEMS))
    ratings = (users % 5 - items % 3).astype("float32")
    history = model.fit([users, items], ratings, batch_size=64, epochs=3, verbose=2)

    for view in strategy.plan.views:
        if view.is_mirrored:
            print("on each worker, with its home on a server:", view.variable)
    # The servers have the newest weights whenever workers rest.
    print("evaluated:", model.evaluate([users, items], ratings, verbose=0))
    assert history.history["loss"][-1] < history.history["loss"][0]


if __name__ == "__main__":
    main()
