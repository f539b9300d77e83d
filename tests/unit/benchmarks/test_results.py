from __future__ import annotations

import pytest

from benchmarks.results import Bar, Spread


def test_a_spread_has_the_ends_and_the_middle() -> None:
    assert Spread.of([3.0, 1.0, 10.0]) == Spread(1.0, 3.0, 10.0)
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0)
    assert Spread.of([1.0, 2.0]).median == 1.5


@pytest.mark.parametrize(
    ("value", "holds"), [(1.49, False), (1.5, True), (7.0, True), (None, None)]
)
def test_a_bar_holds_from_its_aim_on(value: float | None, holds: bool | None) -> None:
    assert Bar("rate", value, aim=1.5).holds is holds


@pytest.mark.parametrize(("value", "holds"), [(1.6, True), (1.61, False), (None, None)])
def test_a_cost_holds_up_to_its_aim(value: float | None, holds: bool | None) -> None:
    assert Bar("cost", value, aim=1.6, is_cost=True).holds is holds


def test_a_bar_is_written_with_what_is_good() -> None:
    written = Bar("rate", 1.23456, aim=1.0).as_json()
    assert written == {"name": "rate", "value": 1.235, "aim": 1.0, "is_cost": False, "holds": True}
