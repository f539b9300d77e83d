"""Finds numbers out of range among the arguments of an optimizer, and describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Range:
    """A range of numbers.

    Args:
        lower_bound: the lower bound.
        includes_lower_bound: whether the range includes the lower bound.
        below: the upper bound, which is excluded; None for no bound.
    """

    lower_bound: float = 0.0
    includes_lower_bound: bool = True
    below: float | None = None

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        is_large = (
            value >= self.lower_bound if self.includes_lower_bound else value > self.lower_bound
        )
        return is_large and (self.below is None or value < self.below)

    def __str__(self) -> str:
        text = f"a number {'from' if self.includes_lower_bound else 'above'} {self.lower_bound:g}"
        return text if self.below is None else f"{text}, below {self.below:g}"


ABOVE_0 = Range(includes_lower_bound=False)
FROM_0_BELOW_1 = Range(below=1.0)


def find_range_problems(**numbers: tuple[Any, Range]) -> list[str]:
    """Return a message for each number that is out of its range.

    Example:

    >>> find_range_problems(momentum=(1.0, FROM_0_BELOW_1), epsilon=(1e-7, ABOVE_0))
    ['momentum: received 1.0, expected a number from 0, below 1']
    """
    return [
        f"{name}: received {value!r}, expected {allowed}"
        for name, (value, allowed) in numbers.items()
        if value not in allowed
    ]
