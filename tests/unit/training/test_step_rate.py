"""The reports between which a step rate is measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.training.report.step_rate import MIN_MEASURED_S, StepRate


def test_reports_that_come_together_say_nothing() -> None:
    """At the end of an epoch of some milliseconds, 34 steps in 2 ms are no real rate."""
    rate = StepRate()
    rate.count(30, now_s=10.0, by_worker=[15, 15])
    rate.count(64, now_s=10.002, by_worker=[32, 32])
    assert (rate.per_second, rate.per_second_by_worker, rate.expected_s(10)) == (None,) * 3
    rate.count(80, now_s=10.05, by_worker=[40, 40])
    assert rate.per_second == pytest.approx(1000)
    assert rate.per_second_by_worker == pytest.approx((500, 500))


@given(
    pauses_s=st.lists(st.floats(0, 0.1), min_size=1, max_size=20),
    late_s=st.floats(0, 0.002),
    per_second=st.integers(100, 2000),
)
def test_a_late_report_changes_a_rate_by_a_tenth(
    pauses_s: list[float], late_s: float, per_second: int
) -> None:
    rate, now_s = StepRate(), 100.0
    rate.count(1000, now_s=now_s + late_s)  # the first one alone is late
    for pause_s in pauses_s:
        now_s += pause_s
        rate.count(1000 + round((now_s - 100.0) * per_second), now_s=now_s)
    half_a_step = 0.5 / MIN_MEASURED_S  # reports have whole ones
    assert (rate.per_second or 0.0) <= 1.1 * per_second + half_a_step + 1e-3
