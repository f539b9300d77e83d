"""Computes how many consecutive replies each operation of a step depends on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)


class Levels(Generic[Node]):
    """Computes after how many consecutive replies the operations of a graph can run.

    Operations at level 0 depend only on the graph's inputs. An operation that touches what the step
    changes has no level, nor have operations that depend on it: these keep their place.

    Args:
        inputs: returns the operations before an operation; no operation runs after itself.
        is_movable: returns whether an operation does the same, as soon as its inputs are ready, no
            matter what runs before.

    Example: the ids of the second look-up depend on the rows of the first.

    >>> inputs = {"batch": [], "ids": ["batch"], "rows": [], "next": ["rows", "ids"], "w": []}
    >>> levels = Levels(inputs=inputs.__getitem__, is_movable=lambda node: node != "w")
    >>> levels.set_reply_level("rows", level=0)
    >>> [levels.compute_level(node) for node in ("ids", "next", "w")]
    [0, 1, None]
    """

    def __init__(
        self, *, inputs: Callable[[Node], Iterable[Node]], is_movable: Callable[[Node], bool]
    ) -> None:
        self._inputs, self._is_movable = inputs, is_movable
        self._known: dict[Node, int | None] = {}

    def set_reply_level(self, operation: Node, *, level: int) -> None:
        """Record that an operation returns the reply to a request of a level."""
        self._known[operation] = level + 1

    def compute_level(self, operation: Node) -> int | None:
        """Compute the level of an operation; None if the operation must keep its place."""
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
                    self._known[node] = _find_max_level([self._known[each] for each in inputs])
        return self._known[operation]


def _find_max_level(levels: list[int | None]) -> int | None:
    known = [level for level in levels if level is not None]
    return max(known, default=0) if len(known) == len(levels) else None
