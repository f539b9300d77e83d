"""Partitioners of both kinds, and models in which everything that can be divided is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import X, cross_entropy
from tfps import partitioners

STOCK = tf.distribute.experimental.partitioners

PARTITIONERS: dict[str, Any] = {
    "fixed": STOCK.FixedShardsPartitioner(3),
    "min size": STOCK.MinSizePartitioner(min_shard_bytes=64, max_shards=4),
    "max size": STOCK.MaxSizePartitioner(max_shard_bytes=100),
    "balanced": partitioners.Balanced(min_shard_bytes=32),
    "modulo": partitioners.RowModulo(),
    "shuffle": partitioners.RowShuffle(),
    "rules": partitioners.ByPath(
        {"kernel": partitioners.RowShuffle()}, otherwise=partitioners.FixedShardsPartitioner(2)
    ),
}


@contextmanager
def strategy_with(
    cluster: Any, partitioner: Any, **options: Any
) -> Iterator[tfps.ParameterServerStrategy]:
    """A strategy on a running cluster."""
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, partitioner, **options)
    try:
        yield strategy
    finally:
        strategy.close()


class ScaledLayer(keras.layers.Layer):
    """A weight with a regularizer and a constraint on its rows, and one on its items."""

    def build(self, input_shape: Any) -> None:
        self.rows = self.add_weight(
            shape=(input_shape[-1], 6),
            regularizer=keras.regularizers.L2(0.05),
            constraint=keras.constraints.MaxNorm(0.6, axis=1),
            name="rows",
        )
        self.items = self.add_weight(
            shape=(6,), initializer="ones", constraint=keras.constraints.NonNeg(), name="items"
        )

    def call(self, inputs: Any) -> Any:
        return keras.ops.matmul(inputs, self.rows) * self.items


def of_many_layers(optimizer: Callable[[], Any]) -> keras.Model:
    """Dense, EinsumDense, MultiHeadAttention, BatchNormalization, Embedding and one of its own."""
    inputs = keras.Input((8,))
    numbers = keras.ops.cast(keras.ops.abs(inputs) * 4, "int32") % 11
    table = keras.layers.Embedding(11, 6, name="table")(numbers)
    mixed = keras.layers.EinsumDense("abc,cd->abd", output_shape=(8, 6), bias_axes="d")(table)
    seen = keras.layers.MultiHeadAttention(2, 3)(mixed, mixed)
    x = keras.layers.Concatenate()([keras.layers.Flatten()(seen), ScaledLayer()(inputs)])
    x = keras.layers.BatchNormalization()(keras.layers.Dense(7, "relu")(x))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    model.compile(optimizer(), cross_entropy(), metrics=["accuracy"])
    assert model(X[:2]).shape == (2, 3)
    return model


def small(optimizer: Callable[[], Any]) -> keras.Model:
    """Cheap to trace."""
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(3)]
    )
    model.compile(optimizer(), cross_entropy())
    return model
