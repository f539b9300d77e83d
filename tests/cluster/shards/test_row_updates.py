"""`RowUpdates` on a cluster: servers update the rows of a batch and no others."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.keras.comparison import (
    BATCH,
    LABELS,
    Comparison,
    assert_same_state,
    cross_entropy,
    fit,
)
from tests.cluster.shards.partitioned import PARTITIONERS, strategy_with
from tfps.errors import UnsupportedError
from tfps.launch import LocalCluster
from tfps.optimizers import GapAware, RowUpdates, StalenessAware
from tfps.optimizers.wrapped import leaves, slot_lists
from tfps.runtime.program import tables
from tfps.runtime.program.tables import LEAST_TABLE_BYTES

pytestmark = pytest.mark.timeout(240)

ROWS, WIDTH = 301, 6
LARGE_ROWS = 50_000
IDS = np.random.default_rng(5).integers(0, ROWS - 40, size=(64, 5))  # the last rows never come
IDS[:, 1] = IDS[:, 0]  # the same row twice in an example
IDS[3:40, 2] = 7  # and one in many
IDS[0, 3] = 0

Make = Callable[[], Any]


def _of_several(of_tables: Any) -> Any:
    others = keras.optimizers.SGD(0.1)
    return keras.optimizers.MultiOptimizer(
        lambda v: of_tables if "embeddings" in v.path else others
    )


EXACT: dict[str, Make] = {
    "sgd": lambda: RowUpdates(keras.optimizers.SGD(0.5)),
    "adagrad": lambda: RowUpdates(keras.optimizers.Adagrad(0.1)),
    "clipped": lambda: RowUpdates(keras.optimizers.SGD(0.5, clipnorm=0.05)),
    "clipped together": lambda: RowUpdates(keras.optimizers.Adagrad(0.5, global_clipnorm=0.05)),
}
LAZY: dict[str, Make] = {
    "momentum": lambda: RowUpdates(keras.optimizers.SGD(0.1, momentum=0.9)),
    "adam": lambda: RowUpdates(keras.optimizers.Adam(0.01)),
    "adamw": lambda: RowUpdates(keras.optimizers.AdamW(0.01, weight_decay=0.1)),
    "rmsprop": lambda: RowUpdates(keras.optimizers.RMSprop(0.01)),
    "stale": lambda: RowUpdates(StalenessAware(keras.optimizers.Adam(0.01))),
    "in stale": lambda: StalenessAware(RowUpdates(keras.optimizers.Adam(0.01))),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(RowUpdates(keras.optimizers.Adam(0.01))),
    "around scaled": lambda: RowUpdates(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01, clipnorm=0.05))
    ),
    "one of several": lambda: _of_several(RowUpdates(keras.optimizers.Adam(0.01))),
    "around several": lambda: RowUpdates(_of_several(keras.optimizers.Adam(0.01))),
}


def _model(optimizer: Make, *, rows: int = ROWS) -> keras.Model:
    """Two tables, one of them looked up twice."""
    inputs = keras.Input((5,), dtype="int32")
    shared = keras.layers.Embedding(rows, WIDTH, name="shared")
    own = keras.layers.Embedding(rows, WIDTH, name="own", mask_zero=True)
    merged = keras.layers.Concatenate()([shared(inputs), own(inputs), shared(inputs[:, ::-1])])
    x = keras.layers.Dense(6, "tanh")(keras.layers.Flatten()(merged))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    model.compile(optimizer(), cross_entropy(), metrics=["accuracy"])
    return model


def _lazy_model(optimizer: Make) -> keras.Model:
    model = _model(optimizer)
    if not tf.distribute.has_strategy():
        model.optimizer.build(model.trainable_variables)
        for leaf in leaves(model.optimizer):
            _leave_other_rows(leaf)
    return model


def _leave_other_rows(leaf: Any) -> None:
    """Let one process apply dense gradients, and then bring back the rows that had none."""
    apply = leaf.apply

    def apply_lazily(grads: Any, trainable_variables: Any) -> None:
        variables = list(trainable_variables)
        gradients = [tf.convert_to_tensor(gradient) for gradient in grads]
        kept = []
        for gradient, variable in zip(gradients, variables, strict=True):
            if "embeddings" in variable.path:
                touched = tf.reduce_any(gradient != 0, 1, keepdims=True)
                slots = [slots[leaf._get_variable_index(variable)] for _, slots in slot_lists(leaf)]
                kept += [
                    (v, touched, tf.identity(v.value)) for v in [variable, *slots] if v is not None
                ]
        apply(gradients, variables)
        for variable, touched, before in kept:
            variable.assign(tf.where(touched, variable.value, before))

    leaf.apply = apply_lazily


@pytest.mark.conformance
@pytest.mark.quick("sgd*")
@pytest.mark.parametrize("optimizer", EXACT)
def test_numbers_of_dense_gradients(
    optimizer: str, cluster: Callable[..., LocalCluster], carrier: str
) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["hash"]) as strategy:
        Comparison(strategy).run(lambda: _model(EXACT[optimizer]), lambda m: fit(m, IDS, LABELS))
        assert strategy.stats().fallback_steps == 0


@pytest.mark.conformance
@pytest.mark.quick("hash-adam", "None-scaled")
@pytest.mark.parametrize("optimizer", LAZY)
@pytest.mark.parametrize("name", ["hash", "modulo", None])
def test_only_rows_that_came_are_updated(
    name: str | None, optimizer: str, cluster: Callable[..., LocalCluster], carrier: str
) -> None:
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    with strategy_with(cluster(workers=1, ps=2), partitioner) as strategy:
        begin: dict[str, np.ndarray] = {}

        def use(model: keras.Model) -> dict[str, Any]:
            begin["own"] = model.get_layer("own").embeddings.numpy()
            return fit(model, IDS, LABELS)

        model = Comparison(strategy).run(lambda: _lazy_model(LAZY[optimizer]), use)
        absent = np.setdiff1d(np.arange(ROWS), IDS)
        table = model.get_layer("own").embeddings.numpy()
        np.testing.assert_array_equal(table[absent], begin["own"][absent])
        assert strategy.stats().fallback_steps == 0


def test_a_small_table_travels_by_rows_too(strategy: tfps.ParameterServerStrategy) -> None:
    """So that what is updated does not depend on a table's size."""
    assert 4 * ROWS * WIDTH < LEAST_TABLE_BYTES
    with strategy.scope():
        model = _model(EXACT["sgd"])
    before = strategy.stats().bytes_pushed
    fit(model, IDS[:BATCH], LABELS[:BATCH], epochs=1)
    rows = 2 * np.unique(IDS[:BATCH]).size
    dense = sum(v.numpy().nbytes for v in model.trainable_variables[2:])
    assert strategy.stats().bytes_pushed - before < dense + rows * (4 * WIDTH + 16) + 1000


def test_a_table_that_lies_in_a_slab(comparison: Comparison) -> None:
    """Where it has come when it travelled as a whole."""

    def use(model: keras.Model) -> dict[str, Any]:
        first = fit(model, IDS, LABELS, epochs=1)
        is_local = not hasattr(model.trainable_variables[0]._value, "shared_name")
        with contextlib.nullcontext() if is_local else comparison.strategy.scope():
            model.compile(LAZY["adam"](), cross_entropy())
        if is_local:
            _leave_other_rows(model.optimizer.inner_optimizer)
        second = fit(model, IDS, LABELS, epochs=1)
        return {"first": first["loss"], "second": second["loss"]}

    comparison.run(lambda: _model(lambda: keras.optimizers.SGD(0.1)), use)


@pytest.mark.slow
def test_it_is_saved_and_goes_on(strategy: tfps.ParameterServerStrategy, tmp_path: Path) -> None:
    with strategy.scope():
        model = _model(LAZY["adam"])
    fit(model, IDS, LABELS, epochs=1)
    model.save(tmp_path / "model.keras")
    with strategy.scope():
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, RowUpdates)
    fit(model, IDS, LABELS, epochs=1)
    fit(loaded, IDS, LABELS, epochs=1)
    assert_same_state(loaded, model)


def _with(optimizer: Make, consistency: Any = None, **size: int) -> dict[str, Any]:
    return {"optimizer": optimizer, "consistency": consistency, "size": {"workers": 1, **size}}


class _Gathering(keras.layers.Layer):
    """Looks rows up by itself."""

    def build(self, _: Any) -> None:
        self.table = self.add_weight(shape=(ROWS, WIDTH), name="table")

    def call(self, ids: Any) -> Any:
        return tf.gather(self.table, ids)


def test_rows_of_another_layer_are_refused(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        layers = [_Gathering(), keras.layers.Flatten(), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input((5,), dtype="int32"), *layers])
        model.compile(LAZY["adam"](), cross_entropy())
    with pytest.raises(UnsupportedError, match="table: tfps.optimizers.RowUpdates received rows"):
        fit(model, IDS, LABELS)


@pytest.mark.quick("*-adam")
@pytest.mark.parametrize("optimizer", ["adam", "in stale", "scaled", "around scaled"])
@pytest.mark.parametrize("way", ["scheduled", "on the coordinator", "pushed"])
def test_where_whole_gradients_travel_it_is_refused(
    way: str, optimizer: str, strategy: tfps.ParameterServerStrategy
) -> None:
    with strategy.scope():
        model = _model(LAZY[optimizer])
        model.optimizer.build(model.trainable_variables)
    ids, labels = tf.constant(IDS[:BATCH]), tf.constant(LABELS[:BATCH])
    # Not in the function that calls the optimizer.
    call = tf.function(model) if way == "scheduled" else model

    def gradients() -> list[Any]:
        with tf.GradientTape() as tape:
            loss = cross_entropy()(labels, call(ids))
        found: list[Any] = tape.gradient(loss, model.trainable_variables)
        return found

    def step() -> None:
        model.optimizer.apply(gradients(), model.trainable_variables)

    def schedule() -> None:
        coordinator = tfps.ClusterCoordinator(strategy)
        coordinator.schedule(tf.function(step))
        coordinator.join()

    def push() -> None:
        named = zip(model.trainable_variables, gradients(), strict=True)
        _, version = strategy.pull([])
        strategy.push({v.path: g for v, g in named}, version, optimizer=model.optimizer)

    run = {"scheduled": schedule, "on the coordinator": step, "pushed": push}[way]
    with pytest.raises(UnsupportedError, match="RowUpdates received rows of a gradient where"):
        run()


def test_what_reads_the_whole_table_updates_all_of_it(comparison: Comparison) -> None:
    def make() -> keras.Model:
        layer = keras.layers.Embedding(ROWS, WIDTH, embeddings_regularizer="l2")
        pooled = keras.layers.GlobalAveragePooling1D()
        model = keras.Sequential([keras.Input((5,)), layer, pooled, keras.layers.Dense(3)])
        model.compile(LAZY["adam"](), cross_entropy())
        return model

    comparison.run(make, lambda model: fit(model, IDS, LABELS))


def test_it_is_said_once_what_would_gain(
    strategy: tfps.ParameterServerStrategy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "LARGE_TABLE_BYTES", LEAST_TABLE_BYTES)
    caplog.set_level(logging.WARNING, logger="tfps.runtime.program.tables")
    with strategy.scope():
        model = _model(lambda: keras.optimizers.Adam(0.01), rows=LARGE_ROWS)
    fit(model, IDS, LABELS, epochs=1)
    model.compile(keras.optimizers.SGD(0.1), cross_entropy())
    fit(model, IDS, LABELS, epochs=1)
    said = [record.getMessage() for record in caplog.records if "RowUpdates" in record.message]
    assert sorted(text.split()[0] for text in said) == ["own/embeddings", "shared/embeddings"]
    assert "has 1 MiB, and each update goes through all of it" in said[0]
    assert (
        "RowUpdates(Adam(...)) would update the batch's rows alone; the numbers change" in said[0]
    )
    caplog.clear()
    with strategy.scope():
        model.compile(LAZY["adam"](), cross_entropy())
    fit(model, IDS, LABELS, epochs=1)
    assert not caplog.records


# A cluster that this process has left it cannot go back to: nothing may come after these.
@pytest.mark.slow
def test_two_workers_learn(cluster: Callable[..., LocalCluster]) -> None:
    with strategy_with(cluster(workers=2, ps=2), PARTITIONERS["hash"]) as strategy:
        with strategy.scope():
            model = _model(LAZY["adam"])
        history = fit(model, IDS, LABELS, epochs=6)
        assert history["loss"][-1] < history["loss"][0]
        assert int(model.optimizer.iterations.numpy()) == 24


@pytest.mark.quick("synchronous", "remembers")
@pytest.mark.parametrize(
    ("case", "message"),
    [
        (_with(LAZY["adam"], tfps.Synchronous()), "received rounds of tfps.Synchronous, under"),
        (_with(LAZY["adam"], tfps.LocalSteps(2)), "received tfps.LocalSteps, under which"),
        (_with(LAZY["adam"], tfps.Asynchronous(pipeline_steps=1)), "received pipeline_steps=1"),
        (_with(LAZY["adam"], logical_cpus=2), "received 2 devices per worker, under"),
        (_with(lambda: GapAware(LAZY["adam"]())), "received GapAware, which remembers"),
    ],
    ids=["synchronous", "local", "pipelined", "devices", "remembers"],
)
def test_where_rows_cannot_be_updated_it_is_refused(
    case: dict[str, Any], message: str, cluster: Callable[..., LocalCluster]
) -> None:
    running = cluster(**{"ps": 2, **case["size"]})
    options = {"consistency": case["consistency"]}
    with strategy_with(running, PARTITIONERS["hash"], **options) as strategy:
        with strategy.scope():
            model = _model(case["optimizer"])
        with pytest.raises(UnsupportedError, match=message):
            fit(model, IDS, LABELS)
