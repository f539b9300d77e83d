"""How stale the gradients of one stretch of training were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def staleness_between(before: Mapping[int, int], after: Mapping[int, int]) -> dict[int, int]:
    """Staleness in updates -> number of gradients, of what lies between two counts.

    Example:

    >>> staleness_between({0: 2, 1: 1}, {0: 2, 1: 4, 3: 1})
    {1: 3, 3: 1}
    """
    counts = Counter(after)
    counts.subtract(before)
    return {staleness: counts[staleness] for staleness in sorted(counts) if counts[staleness]}


def mean_staleness(counts: Mapping[int, int]) -> float:
    """In updates; of no gradient 0."""
    return sum(value * count for value, count in counts.items()) / max(1, sum(counts.values()))


def share_between(counts: Mapping[int, int], low: int, high: int) -> float:
    """Share of the gradients whose staleness lies in a range, both ends included."""
    inside = sum(count for value, count in counts.items() if low <= value <= high)
    return inside / max(1, sum(counts.values()))


def added_up(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Those of several trainings together."""
    total: Counter[int] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def from_json(counts: Mapping[str, int]) -> dict[int, int]:
    """JSON makes words of the keys."""
    return {int(value): count for value, count in counts.items()}
