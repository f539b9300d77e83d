"""How many waiting closures run as one, and when a function is traced for that."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.bridge.closures.run_plan import RunLimits, StepTimes, count_steps, limit_steps, pays

LIMITS = RunLimits()


@given(
    most=st.integers(2, 32),
    waiting=st.integers(1, 1000),
    workers=st.integers(1, 50),
    step_s=st.floats(0.0, 10.0),
)
def test_a_run_takes_its_share_and_ends_in_time(
    most: int, waiting: int, workers: int, step_s: float
) -> None:
    steps = count_steps(most, LIMITS, waiting=waiting, workers=workers, step_s=step_s)
    assert 1 <= steps <= most
    if steps > 1:
        assert steps * workers <= waiting  # as many are left for each other worker
        assert steps * step_s <= LIMITS.longest_s


@given(workers=st.integers(1, 4096), step_bytes=st.integers(1, 1 << 30))
def test_runs_of_all_workers_fit_into_the_window_and_the_memory(
    workers: int, step_bytes: int
) -> None:
    steps = limit_steps(LIMITS, step_bytes=step_bytes, workers=workers, cells=4096)
    assert steps <= LIMITS.most_steps
    assert 2 * steps * workers <= 4096
    assert steps * step_bytes <= LIMITS.most_bytes


@pytest.mark.parametrize(
    ("limits", "seconds", "waiting", "expected"),
    [
        (LIMITS, [1.0, *[0.01] * 7], 16, True),  # the first closure on a worker takes long
        (LIMITS, [0.01] * 7, 16, False),
        (LIMITS, [0.01] * 8, 15, False),
        (LIMITS, [0.05] * 8, 16, False),
        (replace(LIMITS, longest_step_s=math.inf), [0.05] * 8, 16, True),
        (replace(LIMITS, most_steps=1), [0.01] * 8, 16, False),
    ],
)
def test_a_trace_pays(
    limits: RunLimits, seconds: list[float], waiting: int, *, expected: bool
) -> None:
    times = StepTimes()
    for each in seconds:
        times.record(steps=1, seconds=each)
    assert pays(limits, times, waiting=waiting, workers=2) == expected


def test_a_run_without_a_finished_step_tells_no_duration() -> None:
    times = StepTimes()
    times.record(steps=0, seconds=5.0)
    assert (times.closures, times.step_s) == (0, 0.0)
