"""In a custom loop, too, only a batch's rows travel of a large table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import assert_same
from tests.unit.numbers.large_tables import (
    OPTIMIZERS,
    STEPS,
    TABLE_BYTES,
    batches,
    small_tables,
    step_of,
    trained_alone,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

MODES: dict[str, Any] = {
    "asynchronous": tfps.Asynchronous(),
    "bounded": tfps.BoundedStaleness(1),
    "synchronous": tfps.Synchronous(),
    "local": tfps.LocalSteps(2),
}
BY_ROWS = ("asynchronous", "bounded")
UNSCALED = [name for name in OPTIMIZERS if name != "scaled loss"]  # a loop scales it itself


@pytest.mark.conformance
@pytest.mark.quick("hash-asynchronous-adam-2*", "None-bounded-sgd-1*")
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("optimizer", UNSCALED)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["hash", None])
def test_one_process(
    name: str | None,
    mode: str,
    optimizer: str,
    calls: int,
    *,
    cluster: Callable[..., LocalCluster],
    carrier: str,
) -> None:
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    make = OPTIMIZERS[optimizer]
    running = cluster(workers=1, ps=2)
    with strategy_with(running, partitioner, consistency=MODES[mode]) as strategy:
        coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            model = small_tables(make)
        begin = model.get_weights()
        step = tf.function(step_of(model, calls))
        before = strategy.stats()
        losses = [float(coordinator.schedule(step, args=b).fetch()) for b in batches()]
        after = strategy.stats()
        found = model.get_weights()
        assert after.fallback_steps == 0
    expected, weights = trained_alone(begin, make, calls=calls)
    np.testing.assert_allclose(losses, expected, atol=1e-5)
    assert_same(found, weights, tolerance=2e-5)
    moved = after.bytes_pulled - before.bytes_pulled, after.bytes_pushed - before.bytes_pushed
    if mode in BY_ROWS:
        assert max(moved) < TABLE_BYTES
    else:
        assert min(moved) > STEPS * TABLE_BYTES
