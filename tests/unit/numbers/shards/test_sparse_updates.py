"""`SparseUpdates`: servers update the rows of a batch and no others."""

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
from tests.messages import check_message, raises
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    Comparison,
    assert_same_state,
    cross_entropy,
    fit,
)
from tests.unit.numbers.many_tables import FEATURES, many_tables
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT, IDS, LAZY, ROWS, WIDTH, leave_other_rows, tables_model
from tfps.bridge.functions.traced_graph import iter_operations
from tfps.errors import UnsupportedError
from tfps.optimizers import SparseUpdates
from tfps.runtime.program import tables
from tfps.runtime.program.tables import LEAST_TABLE_BYTES
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)

LARGE_ROWS = 50_000


@pytest.mark.repeats
def test_tables_with_rows_alike_are_updated_together(
    cluster: Callable[..., InProcessCluster],
) -> None:
    """The numbers are those of one process, and a server computes once for each width."""

    def model() -> keras.Model:
        return many_tables(lambda: SparseUpdates(keras.optimizers.Adagrad(0.1)), tables=5)

    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        Comparison(strategy).run(model, lambda m: fit(m, FEATURES, LABELS))
        roots = [
            [operation.type for operation in iter_operations(function.graph)].count("Sqrt")
            for function in strategy.runtime.push_functions
        ]
        widths, slabs = 2, 1
        assert roots
        assert set(roots) <= {widths, widths + slabs}


@pytest.mark.repeats
def test_a_small_table_travels_by_rows_too(strategy: tfps.ParameterServerStrategy) -> None:
    """So that what is updated does not depend on a table's size."""
    assert 4 * ROWS * WIDTH < LEAST_TABLE_BYTES
    with strategy.scope():
        model = tables_model(EXACT["sgd"])
    before = strategy.stats().bytes_pushed
    fit(model, IDS[:BATCH], LABELS[:BATCH], epochs=1)
    rows = 2 * np.unique(IDS[:BATCH]).size
    dense = sum(v.numpy().nbytes for v in model.trainable_variables[2:])
    assert strategy.stats().bytes_pushed - before < dense + rows * (4 * WIDTH + 16) + 1000


@pytest.mark.rare
def test_a_table_that_lies_in_a_slab(comparison: Comparison) -> None:
    """The table lies there since it has travelled as a whole."""

    def use(model: keras.Model) -> dict[str, Any]:
        first = fit(model, IDS, LABELS, epochs=1)
        is_local = not hasattr(model.trainable_variables[0].value, "shared_name")
        with contextlib.nullcontext() if is_local else comparison.strategy.scope():
            model.compile(LAZY["adam"](), cross_entropy())
        if is_local:
            leave_other_rows(model.optimizer.inner_optimizer)
        second = fit(model, IDS, LABELS, epochs=1)
        return {"first": first["loss"], "second": second["loss"]}

    comparison.run(lambda: tables_model(lambda: keras.optimizers.SGD(0.1)), use)


@pytest.mark.repeats
def test_it_is_saved_and_goes_on(strategy: tfps.ParameterServerStrategy, tmp_path: Path) -> None:
    with strategy.scope():
        model = tables_model(LAZY["adam"])
    fit(model, IDS, LABELS, epochs=1)
    model.save(tmp_path / "model.keras")
    with strategy.scope():
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, SparseUpdates)
    fit(model, IDS, LABELS, epochs=1)
    fit(loaded, IDS, LABELS, epochs=1)
    assert_same_state(loaded, model)


class _GatherLayer(keras.layers.Layer):
    """Looks rows up by itself."""

    def build(self, _: Any) -> None:
        self.table = self.add_weight(shape=(ROWS, WIDTH), name="table")

    def call(self, ids: Any) -> Any:
        return tf.gather(self.table, ids)


@pytest.mark.rare
def test_rows_of_another_layer_are_refused(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        layers = [_GatherLayer(), keras.layers.Flatten(), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input((5,), dtype="int32"), *layers])
        model.compile(LAZY["adam"](), cross_entropy())
    with raises(
        UnsupportedError, "table: ", received="row gradients", remedy="strategy.push_rows("
    ):
        fit(model, IDS, LABELS)


@pytest.mark.repeats
def test_what_reads_the_whole_table_updates_all_of_it(comparison: Comparison) -> None:
    def make() -> keras.Model:
        layer = keras.layers.Embedding(ROWS, WIDTH, embeddings_regularizer="l2")
        pooled = keras.layers.GlobalAveragePooling1D()
        model = keras.Sequential([keras.Input((5,)), layer, pooled, keras.layers.Dense(3)])
        model.compile(LAZY["adam"](), cross_entropy())
        return model

    comparison.run(make, lambda model: fit(model, IDS, LABELS))


@pytest.mark.rare
def test_it_is_said_once_what_would_gain(
    strategy: tfps.ParameterServerStrategy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "LARGE_TABLE_BYTES", LEAST_TABLE_BYTES)
    caplog.set_level(logging.WARNING, logger="tfps.runtime.program.tables")
    with strategy.scope():
        model = tables_model(lambda: keras.optimizers.Adam(0.01), rows=LARGE_ROWS)
    fit(model, IDS[:BATCH], LABELS[:BATCH], epochs=1)
    model.compile(keras.optimizers.SGD(0.1), cross_entropy())
    fit(model, IDS[:BATCH], LABELS[:BATCH], epochs=1)
    said = [record.getMessage() for record in caplog.records if "SparseUpdates" in record.message]
    assert sorted(text.split(":")[0] for text in said) == ["own/embeddings", "shared/embeddings"]
    check_message(
        said[0], "embeddings: ", received="1 MiB", remedy="tfps.optimizers.SparseUpdates(Adam(...))"
    )
    caplog.clear()
    with strategy.scope():
        model.compile(LAZY["adam"](), cross_entropy())
    fit(model, IDS[:BATCH], LABELS[:BATCH], epochs=1)
    assert not caplog.records


@pytest.mark.repeats
def test_two_workers_learn(cluster: Callable[..., InProcessCluster]) -> None:
    with strategy_with(cluster(workers=2, ps=2), PARTITIONERS["shuffle"]) as strategy:
        with strategy.scope():
            model = tables_model(LAZY["adam"])
        history = fit(model, IDS, LABELS, epochs=6)
        assert history["loss"][-1] < history["loss"][0]
        assert int(model.optimizer.iterations.numpy()) == 24
