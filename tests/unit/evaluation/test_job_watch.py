"""The signs by which a job counts as over."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tfps.evaluation.job_watch import CONFIRMED_AFTER_S, JobWatch

TIMEOUT_S = 600.0


def _watch(timeout_s: float = TIMEOUT_S) -> JobWatch:
    return JobWatch(now_s=0.0, chief_timeout_s=timeout_s, variable="TIMEOUT")


def test_a_job_that_ends_in_order() -> None:
    watch = _watch()
    watch.observe(now_s=0.0, chief=False, others=True)
    watch.observe(now_s=100.0, chief=True, others=False)
    ends = []
    for now_s, alive in ((200.0, False), (200.0 + CONFIRMED_AFTER_S, False), (300.0, True)):
        watch.observe(now_s=now_s, chief=alive, others=alive)
        ends.append(watch.end)
    assert ends == [None, *["all tasks of the cluster have ended"] * 2], "one look is not enough"


def test_a_network_that_fails_for_a_moment() -> None:
    watch = _watch()
    for now_s in (0.0, 20.0, 40.0):
        watch.observe(now_s=now_s, chief=True, others=True)
        watch.observe(now_s=now_s + 10, chief=False, others=False)
    assert watch.end is None


def test_a_chief_that_stays_away() -> None:
    watch = _watch()
    watch.observe(now_s=1.0, chief=True, others=True)
    watch.observe(now_s=10.0, chief=False, others=True)
    watch.observe(now_s=10.0 + TIMEOUT_S - 1, chief=False, others=True)
    assert watch.end is None
    watch.observe(now_s=10.0 + TIMEOUT_S, chief=False, others=True)
    assert watch.end == "the chief did not respond for 600 s (TIMEOUT)"


def test_a_job_of_which_only_checkpoints_are_seen() -> None:
    watch = _watch()
    for now_s in (0.0, 500.0):
        watch.observe(now_s=now_s, chief=False, others=False)
        watch.record_checkpoint(now_s=now_s)
    watch.observe(now_s=1000.0, chief=False, others=False)
    assert watch.end is None
    watch.observe(now_s=1100.0, chief=False, others=False)
    assert watch.end is not None


@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans(), st.booleans()), max_size=20))
def test_a_job_ends_only_without_its_chief(looks: list[tuple[int, bool, bool]]) -> None:
    """With a chief that may stay away for ever, only when all tasks once seen are gone."""
    watches = {timeout_s: _watch(timeout_s) for timeout_s in (1.0, TIMEOUT_S, math.inf)}
    now_s, chief_at_s, anybody_at_s = 0.0, 0.0, math.inf
    for pause_s, chief, others in looks:
        now_s += pause_s
        chief_at_s = now_s if chief else chief_at_s
        anybody_at_s = now_s if chief or others else anybody_at_s
        for timeout_s, watch in watches.items():
            before = watch.end
            watch.observe(now_s=now_s, chief=chief, others=others)
            if watch.end is not None and before is None:
                assert not chief
                nobody = now_s - anybody_at_s >= min(CONFIRMED_AFTER_S, timeout_s)
                assert nobody or now_s - chief_at_s >= timeout_s
