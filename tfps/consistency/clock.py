"""Decide by workers' clocks when a worker may start a step. Pure: NumPy or TensorFlow.

A worker's *clock* is the number of its completed steps. A worker may start a step while its clock
is at most a bound ahead of the slowest worker that takes part. The slowest may always start, so at
least one worker can. The others wait until a clock moves, or a worker leaves.

With several servers each decides by itself, on the same clocks: each tells a worker that joins the
clock of its slowest worker. The new worker continues from the largest of these, and reports it with
its pushes. Otherwise two workers that join servers at different moments could wait for each other
on two servers.

Source: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server", NeurIPS 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfps.consistency.vectors import Vectors

# Larger than any clock; for workers that do not take part.
NEVER = 1 << 60


@dataclass(frozen=True)
class Clocks:
    """The state of a server's workers, one item for each worker.

    Args:
        clocks: completed steps.
        active: 1 for workers that take part.
        waiting: 1 for workers that wait at the gate.
    """

    clocks: Any
    active: Any
    waiting: Any

    def after_entry(self, joins: Any, *, vectors: Vectors) -> Clocks:
        """Return the state after a worker has joined; it starts with the clock of the slowest.

        Args:
            joins: 1 for the worker that joins.
            vectors: operations.
        """
        others = vectors.where(self.active * (1 - joins) == 1, self.clocks, NEVER)
        slowest = vectors.smallest(others)
        begin = vectors.where(slowest < NEVER, slowest, 0)
        return Clocks(
            clocks=vectors.where(joins == 1, begin, self.clocks),
            active=self.active,
            waiting=self.waiting * (1 - joins),
        )

    def after_step(self, mask: Any, clock: Any, *, vectors: Vectors) -> Clocks:
        """Return the state after a worker has completed a step.

        Args:
            mask: 1 for that worker.
            clock: its own count of steps, with this one.
            vectors: operations.
        """
        moved = vectors.where(self.active * mask == 1, clock, self.clocks)
        return Clocks(moved, self.active, self.waiting)

    def compute_leads(self, *, vectors: Vectors) -> Any:
        """Return each active worker's lead over the slowest one; 0 for the others."""
        slowest = vectors.smallest(vectors.where(self.active == 1, self.clocks, NEVER))
        return vectors.where(self.active == 1, self.clocks - slowest, 0)


@dataclass(frozen=True)
class Decision:
    """The result of a request at the gate.

    Args:
        after: the new state.
        released: 1 for workers that waited and may continue.
        blocked: 1 for workers that asked to start and may not.
        gap: the largest lead with which a worker may start now.
    """

    after: Clocks
    released: Any
    blocked: Any
    gap: Any


def decide(state: Clocks, *, asking: Any, bound_steps: int, vectors: Vectors) -> Decision:
    """Decide which workers may start a step.

    Args:
        state: the current state.
        asking: 1 for workers that want to start.
        bound_steps: the largest lead over the slowest worker with which one may start.
        vectors: operations.
    """
    gaps = state.compute_leads(vectors=vectors)
    free = vectors.where(gaps <= bound_steps, 1, 0)
    starts = asking * state.active * free
    return Decision(
        after=Clocks(
            state.clocks,
            state.active,
            vectors.where(asking == 1, state.active * (1 - free), state.waiting * (1 - free)),
        ),
        released=state.waiting * free * (1 - asking),
        blocked=asking * state.active * (1 - free),
        gap=vectors.largest(gaps * starts),
    )
