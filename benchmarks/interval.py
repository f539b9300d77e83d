"""Whether two things measured with the same seeds differ: an interval for the mean difference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean of differences, and the ends between which it lies with the confidence."""

    mean: float
    low: float
    high: float

    @classmethod
    def of_seeds(cls, ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
        """Student's interval for the mean of ours minus theirs; None of less than two seeds.

        Two runs with one seed see the same images and the same delays; their difference varies less
        than they do. Source: Student, "The Probable Error of a Mean", Biometrika 1908.
        """
        differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        if len(differences) < 2:
            return None
        mean = statistics.fmean(differences)
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        reach = error * student_quantile(0.5 + CONFIDENCE / 2, len(differences) - 1)
        return cls(mean, mean - reach, mean + reach)

    def as_json(self) -> dict[str, float]:
        named = {"mean": self.mean, "low": self.low, "high": self.high}
        return {name: round(value, 5) for name, value in named.items()}


def points_text(difference: Interval | None) -> str:
    """Return a difference of accuracies in points, with its ends."""
    if difference is None:
        return ""
    mean, low, high = (100 * each for each in (difference.mean, difference.low, difference.high))
    return f"{mean:+.2f} ({low:+.2f}, {high:+.2f})"


def student_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's distribution, found by bisection."""
    low, high = 0.0, 1.0
    while _below(high, degrees) < probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, degrees) < probability else (low, middle)
    return high


def _below(value: float, degrees: int) -> float:
    """Return Student's distribution function: Abramowitz and Stegun 26.7.3-4."""
    angle = math.atan(value / math.sqrt(degrees))
    term = math.cos(angle) if degrees % 2 else 1.0
    total = 0.0
    for k in range(degrees % 2, degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k + 1) / (k + 2)
    if degrees % 2:
        return 0.5 + (angle + math.sin(angle) * total) / math.pi
    return 0.5 + math.sin(angle) * total / 2
