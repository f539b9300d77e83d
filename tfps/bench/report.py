"""What every benchmark reports: spreads of what was measured, and bars with their aims."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """The middle and the ends of several measurements of one quantity.

    Example:

    >>> Spread.of([3.0, 1.0, 2.0])
    Spread(minimum=1.0, median=2.0, maximum=3.0)
    """

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Summarise at least one sample."""
        return cls(min(samples), statistics.median(samples), max(samples))

    def as_json(self) -> dict[str, float]:
        """Give the form in the report; four digits are more than any machine repeats."""
        named = {"min": self.minimum, "median": self.median, "max": self.maximum}
        return {name: float(f"{value:.4g}") for name, value in named.items()}


@dataclass(frozen=True)
class Bar:
    """A number that the benchmark is about, and what it should reach.

    Args:
        name: what is compared, in words.
        value: the measured number; None when its cases were not run.
        aim: the smallest value that is good; of a cost the largest.
        is_cost: less is better.
    """

    name: str
    value: float | None
    aim: float
    is_cost: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the aim is reached; None when nothing was measured."""
        if self.value is None:
            return None
        return self.value <= self.aim if self.is_cost else self.value >= self.aim

    @property
    def limit(self) -> str:
        """The aim in words."""
        return f"{'at most' if self.is_cost else 'at least'} {self.aim:g}"

    def as_json(self) -> dict[str, Any]:
        """Give the form in the report."""
        value = None if self.value is None else round(self.value, 3)
        return {
            "name": self.name,
            "value": value,
            "aim": self.aim,
            "is_cost": self.is_cost,
            "holds": self.holds,
        }
