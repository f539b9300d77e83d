"""Layouts: every tensor on its own lines, none over another, in order."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import raises
from tfps.partitioners.variable_spec import ITEM_BYTES
from tfps.placement.slab import ALIGNMENT_BYTES
from tfps.transport.layout import Layout

SHAPES = st.lists(st.integers(0, 9), max_size=3).map(tuple)
ENTRIES = st.lists(
    st.tuples(st.text(max_size=4), st.sampled_from(sorted(ITEM_BYTES)), SHAPES),
    max_size=20,
    unique_by=lambda entry: entry[0],
)


def _places(layout: Layout) -> dict[str, tuple[int, int, int]]:
    """For each tensor: first byte, bytes that it needs, bytes that it has."""
    places = {}
    for block in layout.blocks:
        for segment in block.segments:
            item_bytes = ITEM_BYTES[segment.dtype]
            places[segment.name] = (
                block.offset_bytes + segment.offset_items * item_bytes,
                segment.items * item_bytes,
                segment.padded_items * item_bytes,
            )
    return places


@given(entries=ENTRIES)
def test_tensors_lie_on_lines_end_to_end(entries: list[Any]) -> None:
    layout = Layout.from_entries(entries)
    places = _places(layout)
    assert set(places) == {name for name, _, _ in entries}
    end = 0
    for begin, needs, has in sorted(places.values()):
        assert begin == end
        assert begin % ALIGNMENT_BYTES == 0
        assert needs <= has < needs + ALIGNMENT_BYTES or (needs, has) == (0, ALIGNMENT_BYTES)
        end = begin + has
    assert layout.size_bytes == end
    assert len(layout) == len(entries)


@given(entries=ENTRIES)
def test_order_is_kept(entries: list[Any]) -> None:
    layout = Layout.from_entries(entries)
    assert layout.names == tuple(name for name, _, _ in entries)
    assert [block.dtype for block in layout.blocks] == list(dict.fromkeys(d for _, d, _ in entries))
    for block in layout.blocks:
        found = [(segment.name, segment.shape) for segment in block.segments]
        assert found == [(n, shape) for n, dtype, shape in entries if dtype == block.dtype]
        assert all(s.items == math.prod(s.shape) for s in block.segments)


def test_layouts_are_values() -> None:
    entries = [("kernel", "float32", (3, 2)), ("step", "int64", ())]
    assert Layout.from_entries(entries) == Layout.from_entries(iter(entries))
    assert hash(Layout.from_entries(entries)) == hash(Layout.from_entries(entries))
    assert Layout.from_entries(entries) != Layout.from_entries(entries[::-1])


def test_nothing_has_no_bytes() -> None:
    assert (Layout.from_entries([]).size_bytes, len(Layout.from_entries([]))) == (0, 0)


def test_a_name_that_appears_twice_is_refused() -> None:
    entries = [("a", "float32", ()), ("b", "float32", ()), ("a", "int64", ())]
    with raises(ValueError, "names", received=["a"], remedy="unique"):
        Layout.from_entries(entries)


@pytest.mark.parametrize("dtype", ["string", "float8_e5m2", "complex64", "resource", ""])
def test_a_dtype_that_cannot_be_packed_is_refused(dtype: str) -> None:
    with raises(ValueError, "dtype", received=repr(dtype), remedy="bfloat16"):
        Layout.from_entries([("fine", "float32", ()), ("wrong", dtype, ())])
