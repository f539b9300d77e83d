"""Many features in one layer: who likes what, from ids of users, items and baskets.

tfps run --workers 2 --ps 2 examples/embedding_collection.py

Items that are shown and items that were bought share a table. Each table has an optimizer of its
own. However many features there are, a step asks each server once for rows, and sends once.
"""

import keras
import numpy as np
import tensorflow as tf

import tfps
from tfps.layers import EmbeddingCollection, Table
from tfps.optimizers import ByTable
from tfps.partitioners import RowShuffle

USERS, ITEMS, EXAMPLES = 300, 600, 20_000
BATCH, TESTED = 64, 40


def examples():
    """Return ids in three forms, and labels that depend on hidden tastes of users and items."""
    random = np.random.default_rng(0)
    of_users, of_items = random.normal(size=USERS), random.normal(size=ITEMS)
    users, shown = random.integers(0, USERS, EXAMPLES), random.integers(0, ITEMS, EXAMPLES)
    lengths = random.integers(1, 5, EXAMPLES)
    bought = random.integers(0, ITEMS, lengths.sum())
    begins = np.cumsum(lengths) - lengths
    of_baskets = np.add.reduceat(of_items[bought], begins) / lengths
    likes = of_users[users] + of_items[shown] + of_baskets > 0
    features = {
        "user": users,
        "shown": shown,
        "bought": tf.RaggedTensor.from_row_lengths(bought, lengths),
    }
    return features, likes[:, None].astype("float32")


def model_of(inputs):
    users = Table("users", USERS, 8)
    items = Table("items", ITEMS, 8, combiner="mean", optimizer=keras.optimizers.Adagrad(0.1))
    collection = EmbeddingCollection({"user": users, "shown": items, "bought": items})
    rows = collection(inputs)
    joined = keras.layers.Concatenate()([rows["user"], rows["shown"], rows["bought"]])
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(joined))
    optimizers = {"users": keras.optimizers.SGD(1.0), **collection.optimizers}
    by_table = ByTable(optimizers, otherwise="adam")
    model.compile(by_table, "binary_crossentropy", metrics=["accuracy"])
    return model


def main():
    strategy = tfps.ParameterServerStrategy(variable_partitioner=RowShuffle())
    inputs = {
        "user": keras.Input((), name="user", dtype="int64"),
        "shown": keras.Input((), name="shown", dtype="int64"),
        "bought": keras.Input((None,), name="bought", dtype="int64", ragged=True),
    }
    with strategy.scope():
        model = model_of(inputs)
    data = tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH, drop_remainder=True)
    history = model.fit(data.skip(TESTED), epochs=6, shuffle=False, verbose=0).history
    stats = strategy.stats()
    print(f"accuracy in the first epoch {history['accuracy'][0]:.2f}")
    print(f"test accuracy {model.evaluate(data.take(TESTED), verbose=0)[1]:.2f}")
    requests = max(stats.exchanges) / stats.updates_applied
    print(f"{requests:.1f} requests to each server for each step")


if __name__ == "__main__":
    main()
