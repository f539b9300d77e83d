"""The scheduled functions since some checkpoints, in the order in which they ended. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from tfps.consistency.round_point import RoundPoint, oldest_kept

F = TypeVar("F")

# Each holds its arguments: a few hundred bytes and its tensors.
MOST_FUNCTIONS = 1 << 16


class FunctionLog(Generic[F]):
    """What has to be repeated when all servers go back to one of some checkpoints.

    It knows nothing before its first point. A point is noted while no function is under way, so
    that its checkpoint has all of every function before it and nothing of any after it.

    Args:
        capacity: how many functions it holds at most; one more, and it begins anew.

    Example:

    >>> log = FunctionLog[str]()
    >>> first, second = (RoundPoint(number, ledgers=(), applied=()) for number in (1, 2))
    >>> log.note(first, committed=[])
    >>> log.append("a")
    True
    >>> log.note(second, committed=[1])
    >>> log.append("b")
    True
    >>> log.go_back(second), log.go_back(first)
    (['b'], ['a'])
    """

    def __init__(self, *, capacity: int = MOST_FUNCTIONS) -> None:
        self._capacity = capacity
        self._points: list[RoundPoint] = []
        self._before: list[int] = []  # how many of the functions had ended at each of them
        self._functions: list[F] = []

    @property
    def points(self) -> list[RoundPoint]:
        """Where servers can go back to, the oldest first."""
        return list(self._points)

    def __len__(self) -> int:
        return len(self._functions)

    @property
    def since_newest(self) -> int:
        """How many functions have ended since the newest point."""
        return len(self._functions) - (self._before[-1] if self._before else 0)

    def append(self, function: F) -> bool:
        """A function has ended, well; answers whether it could be repeated."""
        if len(self._functions) >= self._capacity:
            self.break_off()
        if self._points:
            self._functions.append(function)
        return bool(self._points)

    def note(self, point: RoundPoint, *, committed: Collection[int]) -> None:
        """Let servers go back to where they are.

        Functions are forgotten that no checkpoint needs which is to be kept.

        Args:
            point: where they are, while no function is under way.
            committed: the numbers of the checkpoints that are complete.
        """
        same = [k for k, known in enumerate(self._points) if known.checkpoint == point.checkpoint]
        for position in reversed(same):
            del self._points[position], self._before[position]
        self._points.append(point)
        self._before.append(len(self._functions))
        first = oldest_kept([known.checkpoint for known in self._points], committed=committed)
        gone = self._before[first]
        del self._points[:first], self._functions[:gone]
        self._before = [count - gone for count in self._before[first:]]

    def go_back(self, point: RoundPoint) -> list[F]:
        """Forget what came after a point; answers the functions, which have to be repeated."""
        position = self._points.index(point)
        begin = self._before[position]
        since = self._functions[begin:]
        del self._functions[begin:], self._points[position + 1 :], self._before[position + 1 :]
        return since

    def break_off(self) -> None:
        """Something else has changed variables: nothing can be repeated until the next point."""
        self._points, self._before, self._functions = [], [], []
