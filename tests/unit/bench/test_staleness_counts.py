from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.bench.staleness_counts import (
    mean_staleness,
    share_between,
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
    below, above = share_between(measured, 0, 9), share_between(measured, 10, 30)
    assert below + above == pytest.approx(1.0 if measured else 0.0)


def test_the_mean_is_over_gradients() -> None:
    assert mean_staleness({1: 3, 5: 1}) == 2.0
    assert mean_staleness({}) == 0.0
    runs = [{"staleness_updates": counts} for counts in ({"3": 1, "12": 2}, {"2": 1, "3": 4})]
    assert staleness_of(runs) == {2: 1, 3: 5, 12: 2}
