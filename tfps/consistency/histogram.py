"""Histograms of durations in fixed logarithmic bins: one integer vector on a server. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Four bins per doubling: a quantile read from a bin is within 9 % of the true one.
BINS_PER_DOUBLING = 4
# 2 ** (128 / 4) microseconds is more than an hour.
DURATION_BINS = 128


def bin_of(microseconds: int) -> int:
    """Return the bin of a duration."""
    if microseconds <= 1:
        return 0
    return min(DURATION_BINS - 1, int(BINS_PER_DOUBLING * math.log2(microseconds)))


def bin_bounds() -> list[int]:
    """Return the smallest duration of each bin from the second on, in microseconds.

    A bin is the number of bounds that a duration reaches. Two bins that begin within the same
    microsecond share a bound, and the lower one stays empty.

    >>> bounds = bin_bounds()
    >>> all(sum(bound <= n for bound in bounds) == bin_of(n) for n in (0, 1, 2, 3, 1000, 1 << 40))
    True
    """
    bounds = []
    for position in range(1, DURATION_BINS):
        microseconds = int(2 ** (position / BINS_PER_DOUBLING))
        while bin_of(microseconds) < position:
            microseconds += 1
        bounds.append(microseconds)
    return bounds


def quantile_seconds(counts: Sequence[int], fraction: float) -> float | None:
    """Return the quantile of the counted durations, or None if there are none.

    >>> counts = [0] * DURATION_BINS
    >>> counts[bin_of(1000)] = 9
    >>> round(quantile_seconds(counts, 0.5), 4)
    0.0009
    """
    total = sum(counts)
    if not total:
        return None
    remaining = fraction * total
    for position, count in enumerate(counts):
        remaining -= count
        if remaining <= 0 and count:
            return _middle_seconds(position)
    return None


def mean_seconds(counts: Sequence[int]) -> float | None:
    """Return the mean of the counted durations, within 9 %, or None if there are none.

    >>> counts = [0] * DURATION_BINS
    >>> counts[bin_of(1000)] = counts[bin_of(3000)] = 1
    >>> round(mean_seconds(counts), 4)
    0.002
    """
    total = sum(counts)
    seconds = sum(count * _middle_seconds(position) for position, count in enumerate(counts))
    return seconds / total if total else None


def _middle_seconds(position: int) -> float:
    return float(2 ** ((position + 0.5) / BINS_PER_DOUBLING) / 1e6)
