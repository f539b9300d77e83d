"""Operations of decisions that differ between integers and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Logic(Protocol):
    """The operations that differ between Python values and tensors."""

    def logical_and(self, left: Any, right: Any) -> Any:
        """Return the logical and."""

    def choose(self, condition: Any, if_true: Any, if_false: Any) -> Any:
        """Return ``if_true`` if the condition holds, else ``if_false``."""

    def minimum(self, left: Any, right: Any) -> Any:
        """Return the minimum."""

    def position_of_smallest(
        self, read: Callable[[Any], Any], *, begin: int, capacity: int, count: Any
    ) -> Any:
        """Return the index of the smallest of ``count`` cells from ``begin``; 0 if none."""


class PlainLogic:
    """The operations of `Logic` for Python booleans and integers."""

    def logical_and(self, left: bool, right: bool) -> bool:
        return left and right

    def choose(self, condition: bool, if_true: Any, if_false: Any) -> Any:
        return if_true if condition else if_false

    def minimum(self, left: int, right: int) -> int:
        return min(left, right)

    def position_of_smallest(
        self, read: Callable[[int], int], *, begin: int, capacity: int, count: int
    ) -> int:
        return min(range(min(count, capacity)), key=lambda k: read(begin + k), default=0)
