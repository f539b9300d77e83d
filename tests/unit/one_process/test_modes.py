"""Every mode trains on workers and servers of one process, and applies what it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tfps
from tests.unit.one_process.unit_steps import counters, fit, schedule

STEPS = 8
MEANS = STEPS / 2  # of the two workers' gradients

Make = Callable[..., tfps.ParameterServerStrategy]

EACH = {
    "asynchronous": tfps.Asynchronous(),
    "bounded": tfps.BoundedStaleness(1),
    "dynamic": tfps.DynamicBoundedStaleness(1, 3),
}


@pytest.mark.parametrize("mode", EACH.values(), ids=EACH)
def test_fit_applies_each_gradient_once(make_strategy: Make, mode: Any) -> None:
    strategy = make_strategy(mode)
    model = counters(strategy, calls=2)
    fit(model, steps=STEPS)
    assert model.counts() == [STEPS, STEPS]
    stats = strategy.stats()
    assert stats.examples_seen == 2 * STEPS
    assert stats.gradients_dropped == 0
    assert stats.carriers == ("in_process", "in_process")
    assert stats.fallback_steps == 0


def test_fit_pipelined(make_strategy: Make) -> None:
    model = counters(make_strategy(tfps.Asynchronous(pipeline_steps=1)))
    fit(model, steps=STEPS)
    assert model.counts() == [STEPS, STEPS]


def test_fit_in_rounds(make_strategy: Make) -> None:
    model = counters(make_strategy(tfps.Synchronous()), calls=2)
    fit(model, steps=STEPS)
    assert model.counts() == [MEANS, MEANS]


def test_fit_with_a_backup_worker(make_strategy: Make) -> None:
    """One gradient makes a round; one that comes too late is dropped, on all servers."""
    strategy = make_strategy(tfps.Synchronous(backup_workers=1))
    model = counters(strategy)
    fit(model, steps=STEPS)
    first, second = model.counts()
    assert first == second
    stats = strategy.stats()
    assert 0 < first <= STEPS
    assert first + stats.gradients_dropped == STEPS
    assert stats.examples_seen == 2 * STEPS


def test_fit_with_local_steps(make_strategy: Make) -> None:
    """What a worker has moved counts by its share of those that take part on a server just then."""
    strategy = make_strategy(tfps.LocalSteps(2))
    model = counters(strategy)
    fit(model, steps=STEPS)
    assert all(MEANS <= count <= STEPS for count in model.counts())
    assert strategy.stats().examples_seen == 2 * STEPS


def test_fit_with_local_steps_in_rounds(make_strategy: Make) -> None:
    model = counters(make_strategy(tfps.LocalSteps(2, synchronous=True)))
    fit(model, steps=STEPS)
    assert model.counts() == [MEANS, MEANS]


def test_fit_with_a_warm_up(make_strategy: Make) -> None:
    """Two steps of a worker alone, then one exchange for each step."""
    strategy = make_strategy(tfps.BoundedStaleness(1, warm_up_steps=2))
    model = counters(strategy)
    fit(model, steps=STEPS)
    # The mean of the first steps, and all of the others.
    assert all(MEANS <= count < STEPS for count in model.counts())
    assert strategy.stats().examples_seen == 2 * STEPS


@pytest.mark.parametrize("mode", EACH.values(), ids=EACH)
def test_functions_apply_each_gradient_once(make_strategy: Make, mode: Any) -> None:
    strategy = make_strategy(mode)
    model = counters(strategy, calls=2)
    schedule(strategy, model, steps=STEPS)
    assert model.counts() == [STEPS, STEPS]
    assert strategy.stats().fallback_steps == 0


def test_functions_in_rounds(make_strategy: Make) -> None:
    strategy = make_strategy(tfps.Synchronous())
    model = counters(strategy, calls=2)
    schedule(strategy, model, steps=STEPS)
    first, second = model.counts()
    assert first == second
    # A worker without a function is not waited for, so some rounds have one gradient.
    assert MEANS <= first <= STEPS


def test_functions_with_local_steps(make_strategy: Make) -> None:
    strategy = make_strategy(tfps.LocalSteps(2))
    model = counters(strategy)
    schedule(strategy, model, steps=STEPS)
    assert all(MEANS <= count <= STEPS for count in model.counts())
