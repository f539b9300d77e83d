"""How stale the gradients of one stretch of training were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.picture import name_axis
from benchmarks.results import Case


def staleness_between(before: Any, after: Any) -> dict[int, int]:
    """Staleness in updates -> number of gradients, of what lies between two of `stats()`."""
    counts = Counter(after.gradient_staleness_updates)
    counts.subtract(before.gradient_staleness_updates)
    return {staleness: counts[staleness] for staleness in sorted(counts) if counts[staleness]}


def mean_staleness(counts: Mapping[int, int]) -> float:
    """In updates; of no gradient 0."""
    return sum(value * count for value, count in counts.items()) / max(1, sum(counts.values()))


def shares(counts: Mapping[int, int], *, most: int | None = None) -> dict[int, float]:
    """Staleness -> share of the gradients; from the most on all together, if it is given."""
    total = max(1, sum(counts.values()))
    found = dict.fromkeys(() if most is None else range(most + 1), 0.0)
    for value, count in counts.items():
        place = value if most is None else min(value, most)
        found[place] = found.get(place, 0.0) + count / total
    return found


def staleness_of(*cases: Case) -> dict[int, int]:
    """Count gradients by staleness over all trainings of some cases; JSON has made keys strings."""
    total: Counter[int] = Counter()
    for run in (run for case in cases for run in case.runs.values()):
        total.update({int(value): count for value, count in run["staleness_updates"].items()})
    return dict(sorted(total.items()))


def draw_staleness(
    axis: Any, bars: Sequence[tuple[str, Mapping[int, float]]], *, width: float, label: str
) -> None:
    """Draw shares of the gradients by staleness: those of each colour beside the others.

    Args:
        axis: of the picture.
        bars: a colour, and `shares`.
        width: of all bars at one staleness.
        label: of the staleness.
    """
    own = width / len(bars)
    for number, (colour, found) in enumerate(bars):
        beside = (number - (len(bars) - 1) / 2) * own
        places = [value + beside for value in found]
        axis.bar(places, [100 * share for share in found.values()], own, color=colour)
    name_axis(axis, label=label, y_label="% of gradients")
