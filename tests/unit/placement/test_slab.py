"""Slabs: every variable in one of them, once, on lines of its own, in order."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from tests.messages import raises
from tfps.partitioners.variable_spec import ITEM_BYTES
from tfps.placement.slab import ALIGNMENT_BYTES, Candidate, SlabLayout, lay_out, padded_items
from tfps.transport.layout import Layout

CANDIDATES = st.lists(
    st.builds(
        Candidate,
        name=st.text(max_size=3),
        server=st.integers(0, 2),
        dtype=st.sampled_from(["float16", "float32", "float64"]),
        shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
        group=st.sampled_from([None, "decayed", ("slab", 1)]),
    ),
    max_size=20,
    unique_by=lambda candidate: candidate.name,
)


@given(candidates=CANDIDATES)
def test_every_variable_lies_in_one_slab_with_its_like(candidates: list[Candidate]) -> None:
    expected = defaultdict(list)
    for each in candidates:
        expected[each.server, each.dtype, each.group].append(each)
    slabs = lay_out(candidates)
    assert [slab.names for slab in slabs] == [
        tuple(each.name for each in members) for members in expected.values()
    ]
    for slab, members in zip(slabs, expected.values(), strict=True):
        assert {(slab.server, slab.dtype)} == {(each.server, each.dtype) for each in members}
        assert [each.shape for each in slab.members] == [each.shape for each in members]


@given(candidates=CANDIDATES)
def test_variables_lie_end_to_end_on_lines(candidates: list[Candidate]) -> None:
    for slab in lay_out(candidates):
        per_line = ALIGNMENT_BYTES // ITEM_BYTES[slab.dtype]
        end = 0
        for member in slab.members:
            assert member.offset_items == end
            assert member.offset_items % per_line == 0
            room = padded_items(member.items, slab.dtype)
            assert max(member.items, 1) <= room < max(member.items, 1) + per_line
            end += room
        assert slab.items == end


@given(candidates=CANDIDATES)
def test_a_slab_is_its_variables_packed(candidates: list[Candidate]) -> None:
    """A message's block of the variables is the slab: the same rule places both."""
    for slab in lay_out(candidates):
        layout = Layout.from_entries((m.name, slab.dtype, m.shape) for m in slab.members)
        (block,) = layout.blocks
        assert [segment.offset_items for segment in block.segments] == [
            member.offset_items for member in slab.members
        ]
        assert block.items == slab.items
        whole = Layout.from_entries([("slab", slab.dtype, (slab.items,))])
        assert whole.size_bytes == layout.size_bytes


def test_slots_take_the_places_of_their_variables() -> None:
    slab = SlabLayout.from_variables(1, "float32", [("kernel", (3, 7)), ("bias", (7,))])
    slots = slab.renamed(["kernel_momentum", "bias_momentum"])
    assert slots.names == ("kernel_momentum", "bias_momentum")
    assert [m.offset_items for m in slots.members] == [m.offset_items for m in slab.members]
    assert (slots.server, slots.dtype, slots.items) == (1, "float32", slab.items)


def test_a_name_that_appears_twice_is_refused() -> None:
    twice: list[Any] = [Candidate("a", 0, "float32", ()), Candidate("a", 1, "float32", ())]
    with raises(ValueError, "names: ", received="['a'] twice", remedy="unique"):
        lay_out(twice)
