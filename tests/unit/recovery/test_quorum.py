"""A job ends after its timeout without enough workers, and never before."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.probing.quorum import Quorum

LOOKS = st.lists(st.tuples(st.integers(0, 4), st.floats(0, 100)), max_size=30)


@given(LOOKS, st.integers(1, 4), st.floats(1, 200))
def test_a_job_ends_after_so_long_without_enough_workers(
    looks: list[tuple[int, float]], min_workers: int, timeout_s: float
) -> None:
    fault_tolerance = FaultTolerance(min_workers=min_workers, no_worker_timeout_s=timeout_s)
    quorum = Quorum(workers=4, fault_tolerance=fault_tolerance)
    now_s, since_s = 0.0, None
    for responding, seconds in looks:
        now_s += seconds
        if responding >= min_workers:
            since_s = None
        elif since_s is None:
            since_s = now_s
        ends = since_s is not None and now_s - since_s >= timeout_s
        assert bool(quorum.end_reason(responding=responding, now_s=now_s)) is ends


def test_nobody_waits_for_who_cannot_return() -> None:
    quorum = Quorum(workers=2, fault_tolerance=FaultTolerance(min_workers=2))
    reasons = [
        quorum.end_reason(responding=responding, now_s=0.0, supervisor_reason="the budget is spent")
        for responding in (2, 1, 0, 2)
    ]
    assert reasons == ["", "the budget is spent", "the budget is spent", ""]


def test_the_reason_counts_who_answers() -> None:
    quorum = Quorum(workers=3, fault_tolerance=FaultTolerance(min_workers=2, no_worker_timeout_s=5))
    quorum.end_reason(responding=1, now_s=0.0)
    assert quorum.end_reason(responding=1, now_s=5.0) == (
        "1 of 3 workers responded, fewer than min_workers=2, for 5 s (no_worker_timeout_s)"
    )
