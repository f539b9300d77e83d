"""Durations in bins: monotone, bounded, and read back within nine percent."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tfps.consistency.histogram import DURATION_BINS, bin_of, quantile_seconds

HOUR_MICROSECONDS = 3600 * 10**6


def _counts(*microseconds: int) -> list[int]:
    counts = [0] * DURATION_BINS
    for duration in microseconds:
        counts[bin_of(duration)] += 1
    return counts


@given(shorter=st.integers(0, 1 << 62), longer=st.integers(0, 1 << 62))
def test_longer_durations_lie_in_later_bins(shorter: int, longer: int) -> None:
    shorter, longer = sorted((shorter, longer))
    assert 0 <= bin_of(shorter) <= bin_of(longer) < DURATION_BINS


def test_an_hour_is_not_in_the_last_bin() -> None:
    assert bin_of(HOUR_MICROSECONDS) < DURATION_BINS - 1


@given(microseconds=st.integers(1, HOUR_MICROSECONDS))
def test_a_duration_is_read_back_within_nine_percent(microseconds: int) -> None:
    seconds = quantile_seconds(_counts(microseconds), 0.5)
    assert seconds == pytest.approx(microseconds / 1e6, rel=0.091)


@given(
    durations=st.lists(st.integers(1, HOUR_MICROSECONDS), min_size=1, max_size=30),
    fraction=st.sampled_from([0.25, 0.5, 0.9, 0.99, 1.0]),
)
def test_a_quantile_is_that_of_the_sorted_durations(durations: list[int], fraction: float) -> None:
    position = next(k for k in range(len(durations)) if k + 1 >= fraction * len(durations) - 1e-9)
    expected = sorted(durations)[position] / 1e6
    assert quantile_seconds(_counts(*durations), fraction) == pytest.approx(expected, rel=0.091)


def test_nothing_measured_is_none_and_not_zero() -> None:
    assert quantile_seconds(_counts(), 0.5) is None
