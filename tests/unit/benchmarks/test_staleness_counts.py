from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.results import Case
from benchmarks.staleness_counts import (
    mean_staleness,
    shares,
    staleness_between,
    staleness_of,
)

counts = st.dictionaries(st.integers(0, 30), st.integers(1, 100))


@given(before=counts, meanwhile=counts)
def test_what_lies_between_is_what_was_added(
    before: dict[int, int], meanwhile: dict[int, int]
) -> None:
    after = {value: before.get(value, 0) + meanwhile.get(value, 0) for value in before | meanwhile}
    stats = [SimpleNamespace(gradient_staleness_updates=each) for each in (before, after)]
    assert staleness_between(*stats) == dict(sorted(meanwhile.items()))


@given(counts)
def test_shares_add_up(measured: dict[int, int]) -> None:
    for most in (None, 9):
        total = sum(shares(measured, most=most).values())
        assert total == pytest.approx(1.0 if measured else 0.0)


def test_what_lies_above_the_most_is_added_to_it() -> None:
    measured = {2: 1, 3: 1, 9: 2}
    assert shares(measured) == {2: 0.25, 3: 0.25, 9: 0.5}
    assert shares(measured, most=3) == {0: 0.0, 1: 0.0, 2: 0.25, 3: 0.75}


def test_the_mean_is_over_gradients() -> None:
    assert mean_staleness({1: 3, 5: 1}) == 2.0
    assert mean_staleness({}) == 0.0
    runs = [{"staleness_updates": counts} for counts in ({"3": 1, "12": 2}, {"2": 1, "3": 4})]
    first, second = Case({}, runs=dict(enumerate(runs))), Case({}, runs={0: runs[1]})
    assert staleness_of(first) == {2: 1, 3: 5, 12: 2}
    assert staleness_of(first, second) == {2: 2, 3: 9, 12: 2}
