"""Only the rows of a batch travel of a large table, unless something needs all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.comparison import LABELS, Comparison, cross_entropy, fit
from tests.unit.numbers.large_tables import IDS, ROWS, TABLE_BYTES, WIDTH, small_tables
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)


def _only_a_table() -> keras.Model:
    layers = [keras.Input((1,), dtype="int32"), keras.layers.Embedding(ROWS, WIDTH)]
    model = keras.Sequential([*layers, keras.layers.Flatten()])
    inner = keras.optimizers.Adam(0.01)
    model.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0), "mse")
    return model


@pytest.mark.slow
@pytest.mark.parametrize("is_finite", [False, True])
def test_all_servers_skip_a_step_that_is_not_finite(
    is_finite: bool, cluster: Callable[..., InProcessCluster]
) -> None:
    """So does a server with no row of the batch and no other variable."""
    ids = np.concatenate([np.arange(4), np.linspace(0, ROWS - 1, 8)]).astype("int32")[:, None]
    targets = np.ones([12, WIDTH], "float32")
    if not is_finite:
        targets[1, 2] = np.inf  # of the first batch, whose rows are all on the first server

    def use(model: keras.Model) -> dict[str, Any]:
        fit(model, ids, targets, batch_size=4)
        return {}

    partitioner = tfps.partitioners.FixedShardsPartitioner(2)
    with strategy_with(cluster(workers=1, ps=2), partitioner) as strategy:
        Comparison(strategy).run(_only_a_table, use)


def _frozen() -> keras.Model:
    model = small_tables()
    for layer in model.layers:
        if isinstance(layer, keras.layers.Embedding):
            layer.trainable = False
    model.compile(keras.optimizers.Adam(0.01), cross_entropy())
    return model


@pytest.mark.repeats
def test_a_frozen_table_is_divided_and_travels_by_rows(
    cluster: Callable[..., InProcessCluster],
) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        Comparison(strategy).run(_frozen, lambda model: fit(model, IDS, LABELS))
        stats, plan = strategy.stats(), strategy.plan
    assert {view.server for view in plan.views if "embeddings" in view.variable} == {0, 1}
    assert stats.bytes_pulled < TABLE_BYTES


class NestedModel(keras.Model):
    """A model that looks up in a function of its own, which the tape sees from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_tables()

    @tf.function
    def call(self, ids: Any) -> Any:
        return self.inner(ids)


def _nested() -> keras.Model:
    model = NestedModel()
    model(IDS[:2])
    model.compile(keras.optimizers.Adam(0.01), cross_entropy())
    return model


class TiedModel(keras.Model):
    """A model that reads its table by rows and as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.table = keras.layers.Embedding(ROWS, WIDTH)

    def call(self, ids: Any) -> Any:
        mean = keras.ops.mean(self.table(ids), 1)
        return keras.ops.matmul(mean, keras.ops.transpose(self.table.embeddings[:3]))


def _tied() -> keras.Model:
    model = TiedModel()
    model.compile(keras.optimizers.SGD(0.5), cross_entropy())
    return model


def _regularized() -> keras.Model:
    layer = keras.layers.Embedding(ROWS, WIDTH, embeddings_regularizer="l2")
    pooled = keras.layers.GlobalAveragePooling1D()
    model = keras.Sequential([keras.Input((5,)), layer, pooled, keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.5), cross_entropy())
    return model


@pytest.mark.repeats
@pytest.mark.parametrize("make", [_tied, _regularized, _nested])
def test_a_table_that_is_read_as_a_whole_travels_as_a_whole(
    make: Callable[[], keras.Model], comparison: Comparison
) -> None:
    before = comparison.strategy.stats().bytes_pulled
    comparison.run(make, lambda model: fit(model, IDS, LABELS))
    assert comparison.strategy.stats().bytes_pulled - before > 8 * TABLE_BYTES


@pytest.mark.rare
def test_an_id_that_is_in_no_table(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = small_tables()
    wrong = IDS.copy()
    wrong[5, 2] = ROWS
    with raises(
        tf.errors.InvalidArgumentError,
        "ids for ",
        received=f"[{ROWS}]",
        remedy=f"expected 0 to {ROWS - 1}",
    ):
        fit(model, wrong, LABELS)
