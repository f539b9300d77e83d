"""How far each worker is, and who may start a step. Pure: vectors of NumPy or TensorFlow.

A worker's *clock* is the number of its completed steps. A worker may start a step while its clock
is at most a bound ahead of the slowest of those that take part; the slowest may always start, so
somebody can. Who may not waits until a clock moves, or somebody leaves.

With several servers each decides by itself, on the same clocks: a worker that joins is told by each
where its slowest is, goes on from the furthest of them, and says so with its pushes. Else servers
that it joins at different moments could have it wait on one for a worker that waits for it on
another one.

Source: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server", NeurIPS 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfps.consistency.vectors import Vectors

# Larger than any clock; stands for those who do not take part.
NEVER = 1 << 60


@dataclass(frozen=True)
class Clocks:
    """What a server knows of its workers, one item for each worker.

    Args:
        clocks: completed steps.
        active: 1 for those that take part.
        waiting: 1 for those that wait at the gate.
    """

    clocks: Any
    active: Any
    waiting: Any

    def entered(self, is_new: Any, *, vectors: Vectors) -> Clocks:
        """A worker takes part from now on; it starts beside the slowest.

        Args:
            is_new: 1 for the worker.
            vectors: operations.
        """
        others = vectors.where(self.active * (1 - is_new) == 1, self.clocks, NEVER)
        slowest = vectors.smallest(others)
        begin = vectors.where(slowest < NEVER, slowest, 0)
        return Clocks(
            clocks=vectors.where(is_new == 1, begin, self.clocks),
            active=self.active,
            waiting=self.waiting * (1 - is_new),
        )

    def ticked(self, mask: Any, clock: Any, *, vectors: Vectors) -> Clocks:
        """A worker has completed a step.

        Args:
            mask: 1 at the worker that has moved.
            clock: its own count of steps, with this one.
            vectors: operations.
        """
        moved = vectors.where(self.active * mask == 1, clock, self.clocks)
        return Clocks(moved, self.active, self.waiting)

    def gaps(self, *, vectors: Vectors) -> Any:
        """By how much each worker that takes part is ahead of the slowest; 0 for the others."""
        slowest = vectors.smallest(vectors.where(self.active == 1, self.clocks, NEVER))
        return vectors.where(self.active == 1, self.clocks - slowest, 0)


@dataclass(frozen=True)
class Decision:
    """What follows at the gate from a request.

    Args:
        after: the clocks, with who waits now.
        released: 1 for those that waited and need not any more.
        blocked: 1 for those that asked to start and may not.
        gap: the largest with which somebody may start now.
    """

    after: Clocks
    released: Any
    blocked: Any
    gap: Any


def decide(state: Clocks, *, asking: Any, bound_steps: int, vectors: Vectors) -> Decision:
    """Who may start a step.

    Args:
        state: the clocks as they are now.
        asking: 1 for those that would start.
        bound_steps: how far ahead of the slowest a worker may start.
        vectors: operations.
    """
    gaps = state.gaps(vectors=vectors)
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
