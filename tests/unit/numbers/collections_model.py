"""A model whose features come in every form, over tables that are shared or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.unit.numbers.comparison import BATCH, EXAMPLES, LABELS, cross_entropy
from tfps.layers import EmbeddingCollection, Table

USERS, ITEMS, WIDTH = 53, 301, 4
RANDOM = np.random.default_rng(11)
LENGTHS = RANDOM.integers(0, 4, EXAMPLES)
LENGTHS[1] = 0
TOTAL = int(LENGTHS.sum())

users = Table("users", USERS, WIDTH)
items = Table("items", ITEMS, WIDTH + 1, combiner="sqrtn")
FEATURES: dict[str, Table] = {
    "user": users,
    "friends": users,
    "seen": items,
    "basket": dataclasses.replace(items, combiner="sum"),
    "words": dataclasses.replace(items, combiner=None),
}


def _ragged(values: Any) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_lengths(values, LENGTHS)


IDS: dict[str, Any] = {
    "user": RANDOM.integers(0, USERS, EXAMPLES),
    "friends": _ragged(RANDOM.integers(0, USERS, TOTAL)),
    "seen": _ragged(RANDOM.integers(0, ITEMS - 40, TOTAL)).to_sparse(),  # the last never come
    "basket": RANDOM.integers(0, ITEMS - 40, (EXAMPLES, 3)),
    "words": RANDOM.integers(0, ITEMS - 40, (EXAMPLES, 2)),
}
WEIGHTS: dict[str, Any] = {
    "friends": _ragged(RANDOM.uniform(0.5, 2, TOTAL).astype("float32")),
    "seen": _ragged(RANDOM.uniform(0.5, 2, TOTAL).astype("float32")).to_sparse(),
    "basket": RANDOM.uniform(0.5, 2, (EXAMPLES, 3)).astype("float32"),
}


class Recommender(keras.Model):
    """A model that concatenates the rows it looks up, with a layer on top."""

    def __init__(self, features: Any = FEATURES) -> None:
        super().__init__()
        self.collection = EmbeddingCollection(features, name="collection")
        self.head = keras.layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        rows = self.collection(inputs["ids"], inputs.get("weights"))
        parts = [rows[name] for name in sorted(rows)]
        return self.head(tf.concat([tf.reshape(p, [tf.shape(p)[0], -1]) for p in parts], 1))


def dataset(
    names: Collection[str] = tuple(FEATURES), *, batch_size: int = BATCH
) -> tf.data.Dataset:
    """Batches of some features, with the weights that there are."""
    ids, weights = ({n: each[n] for n in names if n in each} for each in (IDS, WEIGHTS))
    inputs = {"ids": ids, "weights": weights}
    return tf.data.Dataset.from_tensor_slices((inputs, LABELS)).batch(
        batch_size, drop_remainder=True
    )


def recommender(optimizer: Callable[[], Any], features: Any = FEATURES) -> keras.Model:
    model = Recommender(features)
    model.head.build((None, _width(model.collection)))
    model.collection.build()
    model.built = True
    model.compile(optimizer(), cross_entropy())
    return model


def _width(collection: EmbeddingCollection) -> int:
    columns = {"words": 2}
    return sum(
        table.embedding_dim * columns.get(name, 1) for name, table in collection.features.items()
    )
