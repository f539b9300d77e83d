from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.interval import Interval, student_quantile


@pytest.mark.parametrize(
    ("degrees", "value"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042)],
)
def test_the_quantiles_are_those_of_the_tables(degrees: int, value: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(value, abs=5e-4)


@given(degrees=st.integers(1, 200))
def test_quantiles_fall_to_the_normal_ones(degrees: int) -> None:
    assert student_quantile(0.975, degrees) > student_quantile(0.975, degrees + 1) > 1.9599


def test_the_interval_is_that_of_the_differences() -> None:
    # Differences 1, 2, 3: a mean of 2 with a standard error of 1 / sqrt(3), two degrees of freedom.
    # Only one of them has the seeds 4 and 5.
    interval = Interval.of_seeds(
        {1: 11.0, 2: 22.0, 3: 33.0, 4: 9.0}, {3: 30.0, 2: 20.0, 1: 10.0, 5: 1.0}
    )
    assert interval is not None
    assert interval.mean == pytest.approx(2.0)
    assert interval.high - interval.mean == pytest.approx(4.30265 / 3**0.5, rel=1e-4)
    assert interval.mean - interval.low == pytest.approx(interval.high - interval.mean)
    assert interval.as_json() == {"mean": 2.0, "low": -0.48414, "high": 4.48414}


numbers = st.floats(-1, 1)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=10))
def test_what_is_exchanged_changes_its_sign(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = (dict(enumerate(values)) for values in zip(*pairs, strict=True))
    forth, back = Interval.of_seeds(ours, theirs), Interval.of_seeds(theirs, ours)
    assert forth is not None
    assert back is not None
    assert (forth.mean, forth.low) == pytest.approx((-back.mean, -back.high))
    assert forth.low <= forth.mean <= forth.high


def test_one_seed_says_nothing() -> None:
    assert Interval.of_seeds({1: 1.0, 2: 2.0}, {1: 1.0}) is None
