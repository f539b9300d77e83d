"""Forecasts: what lies where before anything runs."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tfps.placement.forecast import PROCESS_BYTES, Forecast, PlannedVariable, imbalance
from tfps.placement.policy import ByPath, LeastLoaded, RoundRobin

SHAPES = st.lists(st.integers(0, 8), max_size=3).map(tuple)


@st.composite
def _wanted(draw: st.DrawFn) -> list[PlannedVariable]:
    """Weights, then the slots of some of them."""
    weights = [
        PlannedVariable(
            f"layer_{k}/kernel", draw(SHAPES), "float32", is_pulled=True, is_trained=True
        )
        for k in range(draw(st.integers(1, 12)))
    ]
    owners = draw(st.lists(st.integers(0, len(weights) - 1), max_size=12))
    slots = [
        PlannedVariable(f"slot_{k}", weights[owner].shape, "float32", owner=owner)
        for k, owner in enumerate(owners)
    ]
    return weights + slots


@given(wanted=_wanted(), servers=st.integers(1, 6))
def test_everything_lies_somewhere_and_slots_beside_their_weights(
    wanted: list[PlannedVariable], servers: int
) -> None:
    forecast = Forecast.from_variables(wanted, servers=servers, placement=LeastLoaded())
    assert all(0 <= place < servers for place in forecast.server_of_variable)
    for variable, place in zip(wanted, forecast.server_of_variable, strict=True):
        if variable.owner is not None:
            assert place == forecast.server_of_variable[variable.owner]
    assert sum(forecast.bytes_per_server) == sum(4 * math.prod(v.shape) for v in wanted)
    trained = sum(v.size_bytes for v in wanted if v.is_trained)
    assert sum(forecast.step_bytes_per_server) == 2 * trained
    for number, variable in enumerate(wanted):
        if variable.owner is None:
            slots = [v for v in wanted if v.owner == number]
            assert forecast.slot_bytes()[number] == sum(v.size_bytes for v in slots)


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=40), servers=st.integers(1, 6))
def test_least_loaded_is_at_most_one_variable_off(sizes: list[int], servers: int) -> None:
    wanted = [PlannedVariable(str(k), (size,), "float32") for k, size in enumerate(sizes)]
    loads = Forecast.from_variables(
        wanted, servers=servers, placement=LeastLoaded()
    ).bytes_per_server
    assert max(loads) - min(loads) <= 4 * max(sizes)


def test_rules_and_counts_see_what_a_strategy_sees() -> None:
    wanted = [
        PlannedVariable("a/kernel", (2,), "float32"),
        PlannedVariable("a/slot", (2,), "float32", owner=0),
        PlannedVariable("b/kernel", (2,), "float32"),
        PlannedVariable("table", (2,), "float32"),
    ]
    forecast = Forecast.from_variables(
        wanted, servers=3, placement=ByPath({"table": 1}, RoundRobin())
    )
    assert forecast.server_of_variable == (0, 0, 2, 1)  # TensorFlow counts slots as well


def test_counts_of_an_optimizer_follow_its_first_weight() -> None:
    count = PlannedVariable("iteration", (), "int64", moved_beside=1)
    kernel = PlannedVariable("kernel", (2,), "float32")
    forecast = Forecast.from_variables([count, kernel], servers=2, placement=RoundRobin())
    assert forecast.server_of_variable == (1, 1)


def test_memory_is_what_lies_there_and_what_is_on_its_way() -> None:
    kernel = PlannedVariable("kernel", (1000,), "float32", is_pulled=True, is_trained=True)
    state = PlannedVariable("moving_mean", (10,), "float32", is_pulled=True)
    slot = PlannedVariable("momentum", (1000,), "float32", owner=0)
    forecast = Forecast.from_variables([kernel, state, slot], servers=1, placement=LeastLoaded())
    (plain,) = forecast.memory_bytes_per_server(workers=3, has_rounds=False)
    assert plain == PROCESS_BYTES + 8040 + 3 * (4040 + 4000)
    (with_rounds,) = forecast.memory_bytes_per_server(workers=3, has_rounds=True)
    assert with_rounds == plain + 4000


@pytest.mark.parametrize(
    ("totals", "expected"), [([5], 1.0), ([0, 0], 1.0), ([4, 0, 0, 0], 4.0), ([3, 1], 1.5)]
)
def test_imbalance(totals: list[int], expected: float) -> None:
    assert imbalance(totals) == expected
