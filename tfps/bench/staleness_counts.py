"""How stale the gradients of one stretch of training were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def staleness_between(before: Any, after: Any) -> dict[int, int]:
    """Staleness in updates -> number of gradients, of what lies between two of `stats()`."""
    counts = Counter(after.gradient_staleness_updates)
    counts.subtract(before.gradient_staleness_updates)
    return {staleness: counts[staleness] for staleness in sorted(counts) if counts[staleness]}


def mean_staleness(counts: Mapping[int, int]) -> float:
    """In updates; of no gradient 0."""
    return sum(value * count for value, count in counts.items()) / max(1, sum(counts.values()))


def share_between(counts: Mapping[int, int], low: int, high: int) -> float:
    """Share of the gradients whose staleness lies in a range, both ends included."""
    inside = sum(count for value, count in counts.items() if low <= value <= high)
    return inside / max(1, sum(counts.values()))


def staleness_of(runs: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Of several trainings together, of whose keys JSON has made words."""
    total: Counter[int] = Counter()
    for run in runs:
        total.update({int(value): count for value, count in run["staleness_updates"].items()})
    return dict(sorted(total.items()))
