"""The levels of a step's values: the exchanges after which they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tfps.runtime.worker.levels import Levels

GRAPH: dict[str, Sequence[str]] = {
    "batch": [],
    "weight": [],
    "ids": ["batch"],
    "ids of a weight": ["batch", "weight"],
    "more": ["ids"],
    "checked": ["ids", "check"],
    "check": ["batch"],
    "rows": [],
    "next": ["rows", "batch"],
    "next rows": [],
    "last": ["next rows", "next"],
    "mixed": ["next", "ids of a weight"],
}


def _levels(graph: Mapping[str, Sequence[str]]) -> Levels[str]:
    return Levels(inputs=graph.__getitem__, is_movable=lambda name: name != "weight")


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("batch", 0),
        ("ids", 0),
        ("more", 0),
        ("checked", 0),
        ("next", 1),
        ("last", 2),
        ("weight", None),
        ("ids of a weight", None),
        ("mixed", None),
    ],
)
def test_level(name: str, level: int | None) -> None:
    levels = _levels(GRAPH)
    levels.set_reply_level("rows", level=0)
    levels.set_reply_level("next rows", level=1)
    assert levels.compute_level(name) == level
    assert levels.compute_level(name) == level


def test_a_long_chain() -> None:
    """A chain may be as deep as a model, and deeper than Python's recursion limit."""
    chain = {str(k): [str(k - 1)] for k in range(1, 20_000)} | {"0": []}
    assert _levels(chain).compute_level("19999") == 0


def test_what_is_computed_from_often_is_looked_at_once() -> None:
    diamonds = {str(k): [str(k - 1), str(k - 1)] for k in range(1, 200)} | {"0": []}
    assert _levels(diamonds).compute_level("199") == 0
