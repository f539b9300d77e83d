"""Every mode trains on workers and servers of one process, and applies what it should."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.one_process.jobs import STEPS, FitJob, FunctionJob, Jobs
from tests.unit.one_process.unit_steps import BATCH, schedule
from tfps.errors import UnsupportedError

MEANS = STEPS / 2  # of the two workers' gradients
EXAMPLES = BATCH * STEPS


EACH = {
    "asynchronous": (tfps.Asynchronous(), 2),  # optimizer calls
    "bounded": (tfps.BoundedStaleness(1), 2),
}


@pytest.mark.quick("asynchronous")
@pytest.mark.parametrize(("mode", "calls"), EACH.values(), ids=EACH)
def test_fit_applies_each_gradient_once(fit_jobs: Jobs[FitJob], mode: Any, calls: int) -> None:
    job = fit_jobs(mode, calls=calls)
    assert job.counts == [STEPS, STEPS]
    assert (job.examples, job.dropped) == (EXAMPLES, 0)
    stats = job.strategy.stats()
    assert stats.transports == ("in_process", "in_process")
    assert stats.fallback_steps == 0


@pytest.mark.repeats
def test_fit_in_rounds(fit_jobs: Jobs[FitJob]) -> None:
    assert fit_jobs(tfps.Synchronous(), calls=2).counts == [MEANS, MEANS]


@pytest.mark.slow
def test_fit_with_a_backup_worker(fit_jobs: Jobs[FitJob]) -> None:
    """One gradient makes a round; one that comes too late is dropped, on all servers."""
    job = fit_jobs(tfps.Synchronous(backup_workers=1))
    first, second = job.counts
    assert first == second
    assert 0 < first <= STEPS
    assert first + job.dropped == STEPS
    assert job.examples == EXAMPLES


def test_fit_with_local_steps(fit_jobs: Jobs[FitJob]) -> None:
    """A worker's move counts by its share among those that take part on a server at the time."""
    job = fit_jobs(tfps.LocalSteps(2))
    assert all(MEANS <= count <= STEPS for count in job.counts)
    assert job.examples == EXAMPLES


@pytest.mark.slow
def test_fit_with_a_warm_up(fit_jobs: Jobs[FitJob]) -> None:
    """A worker takes two steps alone, then one exchange for each step."""
    job = fit_jobs(tfps.BoundedStaleness(1, warm_up_steps=2))
    # The mean of the first steps, and all of the others.
    assert all(MEANS <= count < STEPS for count in job.counts)
    assert job.examples == EXAMPLES


@pytest.mark.repeats
@pytest.mark.quick("asynchronous")
@pytest.mark.parametrize(("mode", "calls"), EACH.values(), ids=EACH)
def test_functions_apply_each_gradient_once(
    function_jobs: Jobs[FunctionJob], mode: Any, calls: int
) -> None:
    job = function_jobs(mode, calls=calls)
    assert job.counts == [STEPS, STEPS]
    assert job.strategy.stats().fallback_steps == 0


@pytest.mark.slow
def test_functions_in_rounds(function_jobs: Jobs[FunctionJob]) -> None:
    first, second = function_jobs(tfps.Synchronous(), calls=2).counts
    assert first == second
    # A worker without a function is not waited for, so some rounds have one gradient.
    assert MEANS <= first <= STEPS


@pytest.mark.repeats
def test_functions_with_local_steps(function_jobs: Jobs[FunctionJob]) -> None:
    job = function_jobs(tfps.LocalSteps(2))
    assert all(MEANS <= count <= STEPS for count in job.counts)


@pytest.mark.slow
def test_functions_that_train_after_a_warm_up(fit_jobs: Jobs[FitJob]) -> None:
    job = fit_jobs(tfps.BoundedStaleness(1, warm_up_steps=2))
    with raises(
        UnsupportedError,
        "warm_up_steps=2",
        received="a scheduled function that calls an optimizer",
        remedy="learning rate schedule",
    ):
        schedule(job.strategy, job.model, steps=1)
    assert job.model.counts() == job.counts
    read = job.strategy.coordinator.schedule(tf.function(lambda: job.model.first + 0.0))
    assert read.fetch() == job.counts[0]
