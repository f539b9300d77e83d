"""How far beyond the bound a worker may go at once. Pure: vectors of NumPy or TensorFlow.

A worker that runs into its bound waits for the slowest one, and how long depends on when it stops.
So for the one that is ahead of all, a server predicts the next pushes of that worker and of the
slowest from the last two of each, and lets it go on for as many steps as bring one of its pushes
nearest to one of the slowest's. It asks again when those are done. It is never further ahead than
the bound and all extra steps together.

Source: after Zhao, An, Liu and Chen, "Dynamic Stale Synchronous Parallel Distributed Training for
Deep Learning", ICDCS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tfps.consistency import clock
from tfps.consistency.clock import NEVER, Clocks, Decision
from tfps.consistency.vectors import Vectors


@dataclass(frozen=True)
class Pace:
    """When workers have pushed, and how far they may go; one item for each worker.

    Args:
        pushed: when the last step ended, in microseconds; 0: none has since the worker came.
        pushed_before: when the step before did, likewise.
        granted: a worker whose clock is below this may start without asking.
    """

    pushed: Any
    pushed_before: Any
    granted: Any

    def entered(self, is_new: Any) -> Pace:
        """A worker takes part from now on, and nothing is known of it.

        Args:
            is_new: 1 for the worker.
        """
        stays = 1 - is_new
        return Pace(self.pushed * stays, self.pushed_before * stays, self.granted * stays)

    def ticked(self, mask: Any, now: Any, *, vectors: Vectors) -> Pace:
        """A worker has ended a step.

        Args:
            mask: 1 at the worker that has moved.
            now: in microseconds.
            vectors: operations.
        """
        return replace(
            self,
            pushed=vectors.where(mask == 1, now, self.pushed),
            pushed_before=vectors.where(mask == 1, self.pushed, self.pushed_before),
        )


@dataclass(frozen=True)
class Limits:
    """How far ahead of the slowest a worker may start.

    Args:
        bound_steps: always.
        extra_steps: more than that, at most, if it is let.
    """

    bound_steps: int
    extra_steps: int

    @property
    def largest_gap_steps(self) -> int:
        """With which anybody may start."""
        return self.bound_steps + self.extra_steps


def decide(
    state: Clocks, pace: Pace, *, asking: Any, limits: Limits, vectors: Vectors
) -> tuple[Decision, Pace]:
    """Who may start a step, and how far those may go that are let go on.

    Args:
        state: the clocks as they are now.
        pace: of the workers.
        asking: 1 for the one that would start, if any.
        limits: what is allowed.
        vectors: operations.
    """
    gaps = state.gaps(vectors=vectors)
    is_stopped = (gaps > limits.bound_steps) & (state.clocks >= pace.granted)
    is_first = gaps == vectors.largest(gaps)
    stopped = asking * state.active * vectors.where(is_stopped & is_first, 1, 0)
    steps = _extra_steps(state, pace, stopped, limits=limits, vectors=vectors)
    granted = vectors.where(stopped == 1, state.clocks + steps, pace.granted)
    bounds = vectors.where(state.clocks < granted, NEVER, limits.bound_steps)
    decision = clock.decide(state, asking=asking, bound_steps=bounds, vectors=vectors)
    return decision, replace(pace, granted=granted)


def _extra_steps(
    state: Clocks, pace: Pace, stopped: Any, *, limits: Limits, vectors: Vectors
) -> Any:
    """How many more steps a stopped worker is let do; none if too little is known, or of nobody."""
    gaps = state.gaps(vectors=vectors)
    is_slowest = (gaps == 0) & (state.active == 1)
    involved = vectors.where(is_slowest | (stopped == 1), pace.pushed_before, NEVER)
    is_known = vectors.smallest(involved) > 0
    intervals = vectors.where(pace.pushed_before > 0, pace.pushed - pace.pushed_before, 0)
    # Of several that are the slowest, the last one to push ends the wait.
    expected = vectors.where(is_slowest, pace.pushed + intervals, 0)
    awaited = vectors.largest(expected)
    interval = vectors.largest(vectors.where(is_slowest & (expected == awaited), intervals, 0))
    interval = vectors.where(interval > 0, interval, 1)
    steps = np.arange(limits.extra_steps + 1)
    own = vectors.sum(stopped * pace.pushed) + vectors.sum(stopped * intervals) * steps
    nearest = (own - awaited + interval // 2) // interval
    nearest = vectors.where(nearest < 0, 0, nearest)
    nearest = vectors.where(nearest > limits.extra_steps, limits.extra_steps, nearest)
    waits = abs(own - awaited - interval * nearest)
    # The first extra step starts with the gap as it is, each further one with one more.
    room = limits.largest_gap_steps + 1 - vectors.sum(stopped * gaps)
    waits = vectors.where((room >= steps) & is_known, waits, NEVER)
    return vectors.smallest(vectors.where(waits == vectors.smallest(waits), steps, NEVER))
