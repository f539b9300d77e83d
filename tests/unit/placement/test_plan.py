"""A plan counts, compares, hashes and prints as a value."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tfps.placement.plan import Plan, View

VIEW = View("dense/kernel", 1, "slab", 0, (3, 4), "float32")
CHANGES = {
    "variable": "dense/bias",
    "server": 0,
    "slab": "other",
    "offset_items": 12,
    "shape": (4, 3),
    "dtype": "int32",
    "item_bytes": 8,
    "rule": ("modulo", 10, 2),
    "is_mirrored": True,
}


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    servers = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=6))
    places = [draw(st.integers(0, servers - 1)) for _ in sizes]
    views = tuple(
        View(f"v{k}", place, f"v{k}", 0, tuple(shape), "float32")
        for k, (shape, place) in enumerate(zip(sizes, places, strict=True))
    )
    return Plan(servers=servers, views=views)


@given(plan=_plans())
def test_bytes_are_those_of_the_views_on_a_server(plan: Plan) -> None:
    assert plan.bytes_per_server == tuple(
        sum(view.size_bytes for view in plan.views if view.server == server)
        for server in range(plan.servers)
    )
    assert 1.0 <= plan.imbalance <= plan.servers


@given(plan=_plans())
def test_prints_a_line_per_view(plan: Plan) -> None:
    lines = str(plan).splitlines()
    assert len(lines) == len(plan.views) + 2
    assert all(view.variable in line for view, line in zip(plan.views, lines[1:-1], strict=True))


def test_a_scalar_has_one_item() -> None:
    assert dataclasses.replace(VIEW, shape=()).size_bytes == 4


def test_a_plan_without_bytes_is_balanced() -> None:
    assert Plan(servers=3).imbalance == 1.0
    assert Plan(servers=3).bytes_per_server == (0, 0, 0)


def test_equal_plans_have_one_id() -> None:
    plan, same = Plan(servers=2, views=(VIEW,)), Plan(servers=2, views=(VIEW,))
    assert plan == same
    assert plan.plan_id == same.plan_id
    assert 0 <= plan.plan_id < 1 << 62


def test_every_field_of_a_view_is_tried() -> None:
    assert set(CHANGES) == {field.name for field in dataclasses.fields(View)}


@pytest.mark.parametrize(("field", "value"), CHANGES.items())
def test_another_view_is_another_plan(field: str, value: object) -> None:
    changed = dataclasses.replace(VIEW, **{field: value})  # type: ignore[arg-type]
    assert Plan(2, (changed,)).plan_id != Plan(2, (VIEW,)).plan_id


def test_another_number_of_servers_is_another_plan() -> None:
    assert Plan(2, (VIEW,)).plan_id != Plan(3, (VIEW,)).plan_id
