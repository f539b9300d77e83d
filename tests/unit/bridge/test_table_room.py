"""A vector that has room for what is coming does not move when it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.bridge.functions.table_room import TableRoom, compute_capacity


class _Vector:
    """A vector that grows like that of C++, and returns whether it moved."""

    def __init__(self) -> None:
        self.size = self.memory = 0

    def add(self, entries: int) -> bool:
        """Adds entries, and returns whether the vector has moved."""
        before = self.memory
        for _ in range(entries):
            self.size += 1
            if self.size > self.memory:
                self.memory = max(1, 2 * self.memory)
        return self.memory != before


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 100)), max_size=30))
def test_calls_never_move_the_vector(functions: list[tuple[int, int]]) -> None:
    """Each function takes as many entries as expected, or fewer."""
    room, vector = TableRoom(), _Vector()
    for expected, percent in functions:
        missing = room.count_filler_entries(expected)
        vector.add(missing)
        room.filled += missing
        assert not vector.add(expected * percent // 100)
        room.add_used(expected)
        assert vector.memory >= compute_capacity(room.filled)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=50))
def test_little_is_filled(functions: list[int]) -> None:
    """The filled entries are at most twice as many as those in use, and two more."""
    room = TableRoom()
    for calls in functions:
        room.filled += room.count_filler_entries(calls)
        room.add_used(calls)
    assert room.filled <= 2 * sum(functions) + 2


@pytest.mark.parametrize(("calls", "entries"), [(0, 0), (1, 3), (2, 5), (3, 5), (31, 33), (32, 65)])
def test_what_an_empty_table_lacks(calls: int, entries: int) -> None:
    assert TableRoom().count_filler_entries(calls) == entries
