"""When a job counts as over."""

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
    watch.observe(now_s=200.0, chief=False, others=False)
    assert watch.end is None, "one look is not enough"
    watch.observe(now_s=200.0 + CONFIRMED_AFTER_S, chief=False, others=False)
    assert watch.end == "no task of the cluster is left"
    watch.observe(now_s=300.0, chief=True, others=True)
    assert watch.end is not None


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
    assert watch.end == "the chief was away for 600 s (TIMEOUT)"


def test_a_job_of_which_only_checkpoints_are_seen() -> None:
    watch = _watch()
    for now_s in (0.0, 500.0):
        watch.observe(now_s=now_s, chief=False, others=False)
        watch.see_checkpoint(now_s=now_s)
    watch.observe(now_s=1000.0, chief=False, others=False)
    assert watch.end is None
    watch.observe(now_s=1100.0, chief=False, others=False)
    assert watch.end is not None


@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans(), st.booleans()), max_size=20))
def test_nothing_ends_while_somebody_is_there(looks: list[tuple[int, bool, bool]]) -> None:
    patient, watch = _watch(math.inf), _watch()
    now_s, chief_seen_at_s, seen_once = 0.0, 0.0, False
    for pause_s, chief, others in looks:
        now_s += pause_s
        for each in (patient, watch):
            each.observe(now_s=now_s, chief=chief, others=others)
        seen_once |= chief or others
        if not seen_once:
            assert patient.end is None
        if chief:
            chief_seen_at_s = now_s
        if watch.end is None:
            assert not (now_s - chief_seen_at_s > TIMEOUT_S + 1000)
        if chief and watch.end is None:
            assert patient.end is None
