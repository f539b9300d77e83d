from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.bench.staleness_counts import (
    added_up,
    from_json,
    mean_staleness,
    share_between,
    staleness_between,
)

counts = st.dictionaries(st.integers(0, 30), st.integers(1, 100))


@given(before=counts, meanwhile=counts)
def test_what_lies_between_is_what_was_added(
    before: dict[int, int], meanwhile: dict[int, int]
) -> None:
    assert staleness_between(before, added_up([before, meanwhile])) == dict(
        sorted(meanwhile.items())
    )


@given(counts)
def test_shares_add_up(measured: dict[int, int]) -> None:
    below, above = share_between(measured, 0, 9), share_between(measured, 10, 30)
    assert below + above == pytest.approx(1.0 if measured else 0.0)


def test_the_mean_is_over_gradients() -> None:
    assert mean_staleness({1: 3, 5: 1}) == 2.0
    assert mean_staleness({}) == 0.0
    assert from_json({"3": 1, "12": 2}) == {3: 1, 12: 2}
