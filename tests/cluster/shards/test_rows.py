"""Of a large table only the rows of a batch travel, and the numbers are those of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    LOCAL,
    Comparison,
    assert_same,
    cross_entropy,
    densify,
    fit,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster
from tfps.runtime.program.tables import LEAST_TABLE_BYTES

pytestmark = pytest.mark.timeout(240)

ROWS, WIDTH = 20_000, 16
TABLE_BYTES = 4 * ROWS * WIDTH
IDS = np.random.default_rng(5).integers(0, ROWS, size=(64, 5))
IDS[:, 1] = IDS[:, 0]  # the same row twice in an example
IDS[3:40, 2] = 7  # and one in many
IDS[0, 3], IDS[1, 3] = 0, ROWS - 1

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "clipped": lambda: keras.optimizers.Adam(0.01, clipnorm=0.05),
    "clipped together": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.05),
    "scaled loss": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
}


def small_tables(optimizer: Callable[[], Any] = OPTIMIZERS["adam"]) -> keras.Model:
    """Two tables, one of them looked up twice."""
    inputs = keras.Input((5,), dtype="int32")
    shared = keras.layers.Embedding(ROWS, WIDTH, name="shared")
    own = keras.layers.Embedding(ROWS, WIDTH, name="own", mask_zero=True)
    merged = keras.layers.Concatenate()([shared(inputs), own(inputs), shared(inputs[:, ::-1])])
    x = keras.layers.Dense(6, "tanh")(keras.layers.Flatten()(merged))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    model.compile(optimizer(), cross_entropy(), metrics=["accuracy"])
    assert TABLE_BYTES >= LEAST_TABLE_BYTES
    return model


def _use(model: keras.Model) -> dict[str, Any]:
    history = fit(model, IDS, LABELS, validation_data=(IDS, LABELS))
    evaluated = model.evaluate(IDS, LABELS, batch_size=BATCH, verbose=0)
    on_workers = model.predict(IDS, batch_size=BATCH, verbose=0)
    on_the_chief = model.predict(IDS, verbose=0)  # of two batches
    return {
        **history,
        "evaluated": evaluated,
        "predicted": on_workers,
        "predicted on the chief": on_the_chief,
    }


@pytest.mark.conformance
@pytest.mark.quick("hash-clipped*", "None-adam*")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["hash", "modulo", "fixed", None])
def test_one_process(
    name: str | None, optimizer: str, cluster: Callable[..., LocalCluster], carrier: str
) -> None:
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    with strategy_with(cluster(workers=1, ps=2), partitioner) as strategy:
        Comparison(strategy).run(lambda: small_tables(OPTIMIZERS[optimizer]), _use)
        stats = strategy.stats()
        assert stats.fallback_steps == 0
        # Two epochs of four steps with two evaluations each, one more, and a prediction; a table is
        # 1.3 MB.
        assert stats.bytes_pulled < 2 * TABLE_BYTES
        assert stats.bytes_pushed < TABLE_BYTES


def _only_a_table() -> keras.Model:
    layers = [keras.Input((1,), dtype="int32"), keras.layers.Embedding(ROWS, WIDTH)]
    model = keras.Sequential([*layers, keras.layers.Flatten()])
    inner = keras.optimizers.Adam(0.01)
    model.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0), "mse")
    return model


@pytest.mark.parametrize("is_finite", [False, True])
def test_all_servers_skip_a_step_that_is_not_finite(
    is_finite: bool, cluster: Callable[..., LocalCluster]
) -> None:
    """Also one that has no row of the batch, and no other variable."""
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


@pytest.mark.slow
def test_synchronous_workers(cluster: Callable[..., LocalCluster]) -> None:
    options = {"consistency": tfps.Synchronous()}
    keras.utils.set_random_seed(1)
    running = cluster(workers=2, ps=2)
    with strategy_with(running, PARTITIONERS["hash"], **options) as strategy:
        with strategy.scope():
            model = small_tables()
        begin = model.get_weights()
        fit(model, IDS, LABELS)
        found = model.get_weights()
    with tf.device(LOCAL):
        local = small_tables()
    local.set_weights(begin)
    densify(local.optimizer)
    fit(local, IDS, LABELS, batch_size=2 * BATCH)
    assert_same(found, local.get_weights(), tolerance=5e-6)


class Nested(keras.Model):
    """Looks up in a function of its own, which the tape sees from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_tables()

    @tf.function
    def call(self, ids: Any) -> Any:
        return self.inner(ids)


def _nested() -> keras.Model:
    model = Nested()
    model(IDS[:2])
    model.compile(keras.optimizers.Adam(0.01), cross_entropy())
    return model


class Tied(keras.Model):
    """Reads its table by rows and as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.table = keras.layers.Embedding(ROWS, WIDTH)

    def call(self, ids: Any) -> Any:
        mean = keras.ops.mean(self.table(ids), 1)
        return keras.ops.matmul(mean, keras.ops.transpose(self.table.embeddings[:3]))


def _tied() -> keras.Model:
    model = Tied()
    model.compile(keras.optimizers.SGD(0.5), cross_entropy())
    return model


def _regularized() -> keras.Model:
    layer = keras.layers.Embedding(ROWS, WIDTH, embeddings_regularizer="l2")
    pooled = keras.layers.GlobalAveragePooling1D()
    model = keras.Sequential([keras.Input((5,)), layer, pooled, keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.5), cross_entropy())
    return model


@pytest.mark.quick("_tied", "_regularized")
@pytest.mark.parametrize("make", [_tied, _regularized, _nested])
def test_a_table_that_is_read_as_a_whole_travels_as_a_whole(
    make: Callable[[], keras.Model], comparison: Comparison
) -> None:
    before = comparison.strategy.stats().bytes_pulled
    comparison.run(make, lambda model: fit(model, IDS, LABELS))
    assert comparison.strategy.stats().bytes_pulled - before > 8 * TABLE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    "consistency",
    [tfps.LocalSteps(2), tfps.Asynchronous(pipeline_steps=1), tfps.Synchronous(adaptive_batches=2)],
    ids=["local", "pipelined", "adaptive"],
)
def test_modes_in_which_tables_travel_as_a_whole(
    consistency: Any, cluster: Callable[..., LocalCluster]
) -> None:
    running = cluster(workers=1, ps=2)
    with strategy_with(running, PARTITIONERS["hash"], consistency=consistency) as strategy:
        with strategy.scope():
            model = small_tables()
        history = fit(model, IDS, LABELS, epochs=4)
        assert history["loss"][-1] < history["loss"][0]


def test_an_id_that_is_in_no_table(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = small_tables()
    wrong = IDS.copy()
    wrong[5, 2] = ROWS
    with pytest.raises(tf.errors.InvalidArgumentError, match="ids for .*which has 20000 rows"):
        fit(model, wrong, LABELS)
