"""Of a large table only the rows of a batch travel, and the numbers are those of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    LOCAL,
    Comparison,
    assert_same,
    densify,
    fit,
)
from tests.unit.numbers.large_tables import IDS, OPTIMIZERS, TABLE_BYTES, small_tables
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)


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
