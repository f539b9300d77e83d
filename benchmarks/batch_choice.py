"""The choice of a batch and an exchange. Pure: numbers in, one of them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.accuracy import GOAL, NEVER_S
from benchmarks.exchange import Exchange
from benchmarks.results import Spread
from benchmarks.table import number_text


@dataclass(frozen=True)
class Pair:
    """A batch and a way to exchange, and what was measured with them."""

    batch_size: int
    exchange: Exchange  # and how many steps a worker takes before it
    goal_s: Spread  # seconds to the test accuracy; `NEVER_S` where it was not reached
    memory_mib: Spread  # the most that a worker needed

    @property
    def title(self) -> str:
        return f"batch {self.batch_size}, {self.exchange.title}"


@dataclass(frozen=True)
class Choice:
    """A pair to take, None if there is nothing to choose from, and the reason in one line."""

    pair: Pair | None
    reason: str


def choose(pairs: Sequence[Pair]) -> Choice:
    """Return the pair with the shortest time to the accuracy; of similar times, less memory.

    Noise is what the fastest pair shows itself: a pair whose median lies within the spread of the
    fastest is as fast. Likewise, a pair whose memory lies within the spread of the leanest of
    those needs no more memory. Pairs that missed the accuracy with any seed are left out.
    """
    arrived = [pair for pair in pairs if pair.goal_s.maximum < NEVER_S]
    if not arrived:
        return Choice(None, f"none reached {GOAL:g} with every seed: train for longer")
    fastest = min(arrived, key=_sort_key)
    level = [pair for pair in arrived if pair.goal_s.median <= fastest.goal_s.maximum]
    leanest = min(level, key=lambda pair: (pair.memory_mib.median, *_sort_key(pair)))
    lean = [pair for pair in level if pair.memory_mib.median <= leanest.memory_mib.maximum]
    taken = min(lean, key=_sort_key)
    if taken is not fastest:
        saved_mib = number_text(fastest.memory_mib.median - taken.memory_mib.median)
        than = f"within the spread of the fastest ({fastest.title})"
        why = f"{than}, with {saved_mib} MiB less per worker"
    elif taken.goal_s.minimum == taken.goal_s.maximum:
        why = "the shortest; without a spread, noise is not known"
    elif len(level) == 1:
        why = "the shortest beyond noise"
    else:
        why = f"the shortest; {len(level) - 1} within its spread, none with clearly less memory"
    return Choice(taken, f"{number_text(taken.goal_s.median)} s to {GOAL:g}, {why}")


def _sort_key(pair: Pair) -> tuple[float, float, int, Exchange]:
    """Return a total order, so that the order of rows decides nothing."""
    return pair.goal_s.median, pair.memory_mib.median, pair.batch_size, pair.exchange
