"""A closure keeps its number, and no other one that may still be run shares its cell."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.messages import raises
from tfps.bridge.closures.closure_numbers import ClosureNumbers, get_running_closure, mark_running

CELLS = 4


class Closure:
    """Something that is run, perhaps again."""


@given(st.lists(st.tuples(st.sampled_from(["begin", "again", "end"]), st.integers(0, CELLS - 2))))
def test_who_is_under_way_has_a_cell_for_itself(events: list[tuple[str, int]]) -> None:
    numbers, known = ClosureNumbers(cells=CELLS), dict[int, int]()
    under_way: dict[int, Any] = {}
    newest = 0
    for event, place in events:
        if event == "begin" and place not in under_way:
            under_way[place] = Closure()
            known[place] = numbers.get_number(under_way[place])
            assert known[place] > newest
            newest = known[place]
        elif event == "again" and place in under_way:
            assert numbers.get_number(under_way[place]) == known[place]
        elif event == "end":
            under_way.pop(place, None)
            known.pop(place, None)
        assert len({number % CELLS for number in known.values()}) == len(known)


def test_more_than_there_are_cells_are_refused() -> None:
    numbers, closures = ClosureNumbers(cells=CELLS), [Closure() for _ in range(CELLS)]
    assert [numbers.get_number(closure) for closure in closures] == list(range(1, CELLS + 1))
    with raises(RuntimeError, "scheduled functions", received=f"more than {CELLS}"):
        numbers.get_number(Closure())
    closures.pop(1)
    assert numbers.get_number(Closure()) % CELLS == 2 % CELLS


def test_numbers_begin_after_those_of_the_chief_before() -> None:
    numbers, closure = ClosureNumbers(cells=CELLS), Closure()
    numbers.begin_after(1000)
    assert (numbers.get_number(None), numbers.get_number(closure), numbers.get_number(None)) == (
        1001,
        1002,
        1003,
    )
    assert numbers.get_number(closure) == 1002


def test_each_thread_runs_its_own() -> None:
    found: list[Any] = []
    with mark_running("mine"):
        thread = threading.Thread(target=lambda: found.append(get_running_closure()))
        thread.start()
        thread.join()
        assert get_running_closure() == "mine"
    assert (found, get_running_closure()) == ([None], None)
