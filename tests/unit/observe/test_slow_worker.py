"""The slow worker of a job, and the remedy."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfps
from tfps.observe.slow_worker import (
    LEAST_DIFFERENCE_S,
    SLOW_RATIO,
    describe_slow_worker,
    find_slow_worker,
)


@given(st.lists(st.none() | st.floats(1e-6, 1e4), max_size=8))
def test_the_one_named_is_slower_than_twice_the_others(seconds: list[float | None]) -> None:
    found = find_slow_worker(seconds)
    known = [each for each in seconds if each is not None]
    if found is None:
        if len(known) > 1:
            rest = sorted(known)[:-1]
            limit = max(SLOW_RATIO * statistics.median(rest), statistics.median(rest) + 0.02)
            assert max(known) <= limit * (1 + 1e-9)
        return
    worker, ratio = found
    own = seconds[worker]
    assert own == max(known)
    rest = [each for i, each in enumerate(seconds) if each is not None and i != worker]
    assert own > statistics.median(rest) + LEAST_DIFFERENCE_S
    assert ratio == own / statistics.median(rest) > SLOW_RATIO


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [
        (tfps.Synchronous(), "Synchronous(backup_workers=1)"),
        (tfps.Synchronous(backup_workers=1), "check its CPU"),
        (tfps.BoundedStaleness(2), "Asynchronous()"),
        (tfps.Asynchronous(), "check its CPU"),
    ],
    ids=repr,
)
def test_the_remedy_is_one_that_the_mode_does_not_have(mode: object, remedy: str) -> None:
    text = describe_slow_worker([2.0, 2.0, 68.0], mode=repr(mode))
    assert text.startswith("worker 2 is slow, 68 s per step, 34.0x the others: ")
    assert remedy in text
    others = {"Synchronous(backup", "Asynchronous()"}
    assert not any(other in text for other in others if other not in remedy)
    assert describe_slow_worker([2.0, 2.0, 3.0], mode=repr(mode)) == ""
