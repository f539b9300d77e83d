"""When what a step computes is known: from its batch alone, or after how many answers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)


class Levels(Generic[Node]):
    """After how many answers, one on the other, the operations of a graph can run.

    At level 0 are those that follow from what the graph is given. An operation that touches what
    the step changes has no level, nor has what follows from it: these keep their place.

    Args:
        inputs: what an operation runs after; nothing runs after itself.
        is_movable: whether an operation does the same, as soon as its inputs are there, whatever
            runs before.

    Example: the ids of the second look-up follow from the rows of the first.

    >>> inputs = {"batch": [], "ids": ["batch"], "rows": [], "next": ["rows", "ids"], "w": []}
    >>> levels = Levels(inputs=inputs.__getitem__, is_movable=lambda node: node != "w")
    >>> levels.answered("rows", level=0)
    >>> [levels.of(node) for node in ("ids", "next", "w")]
    [0, 1, None]
    """

    def __init__(
        self,
        *,
        inputs: Callable[[Node], Iterable[Node]],
        is_movable: Callable[[Node], bool],
    ) -> None:
        self._inputs, self._is_movable = inputs, is_movable
        self._known: dict[Node, int | None] = {}

    def answered(self, operation: Node, *, level: int) -> None:
        """An operation has what was asked for at a level, whatever its inputs are."""
        self._known[operation] = level + 1

    def of(self, operation: Node) -> int | None:
        """The level of an operation, or None."""
        waiting = [operation]
        while waiting:
            node = waiting[-1]
            if node in self._known:
                waiting.pop()
            elif not self._is_movable(node):
                self._known[node] = None
            else:
                inputs = list(self._inputs(node))
                unknown = [each for each in inputs if each not in self._known]
                waiting += unknown
                if not unknown:
                    self._known[node] = _latest([self._known[each] for each in inputs])
        return self._known[operation]


def _latest(levels: list[int | None]) -> int | None:
    known = [level for level in levels if level is not None]
    return max(known, default=0) if len(known) == len(levels) else None
