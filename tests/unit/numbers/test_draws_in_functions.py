"""Scheduled functions that run at the same time draw random numbers of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfps
from tests.unit.numbers.drawing import STEPS_PER_FUNCTION, Steps, distinct
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)
FUNCTIONS = 8
MODES: dict[str, Any] = {
    "asynchronous": "asynchronous",
    "synchronous": "synchronous",
    "backup": tfps.Synchronous(backup_workers=1),
    "bounded": tfps.BoundedStaleness(2),
    "local": tfps.LocalSteps(3),
}


@pytest.mark.quick("asynchronous-2")
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_each_run_has_noise_of_its_own(
    cluster: Callable[..., InProcessCluster], workers: int, mode: str
) -> None:
    resolver = cluster(workers=workers).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=MODES[mode])
    try:
        steps = Steps(strategy)
        drawn = np.concatenate([steps.run(FUNCTIONS), steps.run(FUNCTIONS)])
        assert distinct(drawn) == 2 * FUNCTIONS * STEPS_PER_FUNCTION
        here = Steps(None)
        here.run(2 * FUNCTIONS)
        assert steps.states == here.states
    finally:
        strategy.close()


@pytest.mark.repeats
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "backup"])
def test_one_worker_draws_what_one_process_draws(
    cluster: Callable[..., InProcessCluster], mode: str
) -> None:
    resolver = cluster(workers=1, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=MODES[mode])
    try:
        steps, here = Steps(strategy), Steps(None)
        np.testing.assert_array_equal(steps.run(FUNCTIONS), here.run(FUNCTIONS))
        assert steps.states == here.states
    finally:
        strategy.close()


@pytest.mark.rare
def test_the_next_life_of_a_worker_draws_other_numbers(
    cluster: Callable[..., InProcessCluster],
) -> None:
    """A run that was lost with its worker has told nothing of its draws."""
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=2).cluster_resolver)
    try:
        steps = Steps(strategy)
        before = [state.numpy() for state in steps.generators]
        drawn = steps.run(FUNCTIONS)
        for generator, state in zip(steps.generators, before, strict=True):
            generator.assign(state)  # a worker that is lost has not told of its draws
        strategy.runtime.get_life = lambda _: 2
        drawn = np.concatenate([drawn, steps.run(FUNCTIONS)])
        assert distinct(drawn) == len(drawn)
    finally:
        strategy.close()
