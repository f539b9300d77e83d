"""Divided variables under the other modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.numbers.comparison import LABELS, X, fit
from tests.unit.numbers.partitioned import PARTITIONERS, small, strategy_with
from tfps.testing import InProcessCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]


def _adam() -> Any:
    return keras.optimizers.Adam(0.01)


MODES = {
    "bounded": tfps.BoundedStaleness(bound_steps=1),
    "local": tfps.LocalSteps(period_steps=3),
    "elastic": tfps.LocalSteps(period_steps=2, elasticity=0.4),
    "local rounds": tfps.LocalSteps(period_steps=2, synchronous_periods=True),
    "adaptive": tfps.Synchronous(adaptive_batches=2),
    "pipelined": tfps.Asynchronous(pipeline_steps=1),
    "warm-up": tfps.Asynchronous(warm_up_steps=2),
}


@pytest.mark.parametrize("name", MODES)
def test_modes(name: str, cluster: Callable[..., InProcessCluster]) -> None:
    running = cluster(workers=2, ps=2)
    with strategy_with(running, PARTITIONERS["modulo"], consistency=MODES[name]) as strategy:
        with strategy.scope():
            model = small(_adam)
        history = fit(model, np.tile(X, (4, 1)), np.tile(LABELS, 4), epochs=4)
        assert history["loss"][-1] < history["loss"][0]
        assert strategy.stats().fallback_steps == 0


def test_wrappers_that_remember_what_each_worker_knows(
    cluster: Callable[..., InProcessCluster],
) -> None:
    running = cluster(workers=2, ps=2)
    with strategy_with(running, PARTITIONERS["shuffle"]) as strategy:
        with strategy.scope():
            inner = keras.optimizers.SGD(0.05)
            model = small(lambda: tfps.optimizers.GapAware(inner))
        history = fit(model, epochs=4)
        assert history["loss"][-1] < history["loss"][0]
