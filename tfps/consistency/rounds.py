"""Rounds: a server applies one mean of many workers' gradients. Pure: NumPy or TensorFlow vectors.

A worker's step contributes once to each optimizer call of one round. The server goes on to the next
call, or round, when as many of those that take part have contributed as are required; fewer are
when fewer are left. Its *position* says how far it is: ``round * MAX_CALLS + call_number``.

A worker takes part from a round on that it has agreed with all servers, so a round has the same
members everywhere. Nobody need say how many rounds there are: who has no ticket left leaves, and
the others' round is complete without it.

What a worker contributes to is an *optimizer call*: an optimizer with the variables that it is
given gradients of, which has a number. `fit` has one. Where scheduled functions contribute to
several in one round, no request can apply all of them. Such a round is *closed* when it is
complete: nothing is added any more, and for each call one of its contributors applies the mean. The
next round begins after that.

Source: Chen et al., "Revisiting Distributed Synchronous SGD", ICLR 2016 workshop, for backup
workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tfps.consistency.ledger import MAX_CALLS, NEVER, NOTHING
from tfps.consistency.vectors import Vectors


@dataclass(frozen=True)
class Rounds:
    """Where a server is in its rounds; vectors have one item for each worker.

    Args:
        position: of the server, a scalar.
        begins: the first round that the worker takes part in.
        contributed: the optimizer call that its gradient has been counted for at this position; 0
            if it has not; below 0 if the round is closed and the call has still to be applied.
        wanted: the position that it waits for.
    """

    position: Any
    begins: Any
    contributed: Any
    wanted: Any

    @property
    def number(self) -> Any:
        """Of the round at hand."""
        return self.position // MAX_CALLS

    @property
    def upcoming(self) -> Any:
        """The number of the first round that has not begun, or begins now."""
        return (self.position + MAX_CALLS - 1) // MAX_CALLS

    def is_closed(self, *, vectors: Vectors) -> Any:
        """1 while optimizer calls of the round at hand are applied one after the other."""
        return vectors.where(vectors.smallest(self.contributed) < 0, 1, 0)

    def members(self, *, vectors: Vectors) -> Any:
        """1 for those that take part in the round at hand."""
        return vectors.where(self.begins <= self.number, 1, 0)

    def expecting(self, mask: Any, *, vectors: Vectors) -> Rounds:
        """Workers will come: they take part at once, so that nobody runs a round without them.

        Args:
            mask: 1 for those.
            vectors: operations.
        """
        return replace(self, begins=vectors.where(mask == 1, self.number, self.begins))

    def entered(self, mask: Any, *, vectors: Vectors) -> Rounds:
        """Workers have joined, and have contributed nothing yet."""
        return self._without(mask, begins=self.begins, vectors=vectors)

    def beginning(self, mask: Any, number: Any, *, vectors: Vectors) -> Rounds:
        """Workers take part from a round on, and wait for it; not if it has begun already.

        They take part from the next one on then, and will agree with the other servers on that.

        Args:
            mask: 1 for those.
            number: of the round, a scalar.
            vectors: operations.
        """
        later = vectors.where(number > self.upcoming, number, self.upcoming)
        waiting = self.waiting_for(mask, number, vectors=vectors)
        return replace(waiting, begins=vectors.where(mask == 1, later, self.begins))

    def waiting_for(self, mask: Any, number: Any, *, vectors: Vectors) -> Rounds:
        """Workers wait for the begin of a round; not if it has begun already."""
        goal = vectors.where(number >= self.upcoming, number * MAX_CALLS, NOTHING)
        return replace(self, wanted=vectors.where(mask == 1, goal, self.wanted))

    def left(self, mask: Any, *, vectors: Vectors) -> Rounds:
        """Workers take no part any more. What they have contributed stays in its round.

        Except that of an optimizer call of a closed round that nobody else can apply.
        """
        begins = vectors.where(mask == 1, NEVER, self.begins)
        return self._without(mask, begins=begins, vectors=vectors)

    def _without(self, mask: Any, *, begins: Any, vectors: Vectors) -> Rounds:
        wanted = vectors.where(mask == 1, NOTHING, self.wanted)
        without = replace(
            self, begins=begins, contributed=self.contributed * (1 - mask), wanted=wanted
        )
        ends = self.is_closed(vectors=vectors) * (1 - without.is_closed(vectors=vectors))
        position = vectors.where(ends == 1, self.upcoming * MAX_CALLS, self.position)
        return replace(without, position=position)

    def accepts(self, mask: Any, position: Any, *, vectors: Vectors) -> Any:
        """Whether a contribution that was computed at a position is in time.

        Args:
            mask: 1 for the worker.
            position: that its parameters came from, with the call that it is for.
            vectors: operations.
        """
        is_free = vectors.where(self.contributed == 0, 1, 0)
        takes_part = vectors.largest(self.members(vectors=vectors) * mask * is_free)
        in_time = vectors.where(position == self.position, 1, 0)
        return in_time * takes_part * (1 - self.is_closed(vectors=vectors))

    def can_apply(self, mask: Any, position: Any, *, call_id: int = 1, vectors: Vectors) -> Any:
        """Whether a worker that waits can apply a call: it has contributed to it, nobody has.

        Args:
            mask: 1 for the worker.
            position: that its parameters came from.
            call_id: that its function can apply.
            vectors: operations.
        """
        is_closed = self.is_closed(vectors=vectors)
        mine = vectors.where(is_closed == 1, -call_id, call_id)
        is_there = vectors.where(self.position == position + is_closed, 1, 0)
        return is_there * vectors.largest(mask * vectors.where(self.contributed == mine, 1, 0))

    def after_push(
        self,
        mask: Any,
        *,
        accepted: Any,
        alive: Any,
        next_position: Any,
        call_id: int = 1,
        vectors: Vectors,
    ) -> Rounds:
        """A worker has pushed, and goes on when the position that it needs is reached.

        Args:
            mask: 1 for the worker.
            accepted: 1 if it counts; if it came too late, the worker goes on at once.
            alive: 1 if the worker is the one that the server knows.
            next_position: that follows the call that it was for, in its round.
            call_id: that it was for.
            vectors: operations.
        """
        wanted = vectors.where(accepted == 1, next_position, NOTHING)
        return replace(
            self,
            contributed=vectors.where(mask * accepted == 1, call_id, self.contributed),
            wanted=vectors.where(mask * alive == 1, wanted, self.wanted),
        )


@dataclass(frozen=True)
class RoundDecision:
    """What follows from a change.

    Args:
        after: the rounds, when it has been done.
        completes: 1 if the sum of the optimizer call's contributions is to be applied, a scalar.
        released: 1 for those that waited and can go on.
        able: 1 for those that wait and could complete the round, which nobody has done.
    """

    after: Rounds
    completes: Any
    released: Any
    able: Any


def decide(
    state: Rounds,
    *,
    required: int,
    next_position: Any,
    may_apply: Any,
    call_id: int = 1,
    vectors: Vectors,
) -> RoundDecision:
    """Whether the position is complete, and who can go on.

    Args:
        state: as it is now.
        required: how many contributions are, if so many workers take part.
        next_position: that follows the one at hand.
        may_apply: 1 if whoever asks can apply what has been contributed to the optimizer call.
        call_id: that whoever asks can apply.
        vectors: operations.
    """
    members = state.members(vectors=vectors)
    is_closed = state.is_closed(vectors=vectors)
    has_contributed = vectors.where(state.contributed > 0, 1, 0)
    # Who waits for a later round, where servers were apart, contributes nothing to this one.
    is_free = vectors.where(state.wanted < 0, 1, has_contributed)
    there = vectors.sum(members * is_free)
    needed = vectors.where(there < required, there, required)
    quorum = vectors.where(needed < 1, 1, needed)
    counted = vectors.sum(members * has_contributed)
    is_full = vectors.where(counted >= quorum, 1, is_closed)
    completes = may_apply * is_full
    # What others have to apply; a request without an optimizer call of its own leaves all as it is.
    own = vectors.where(is_closed == 1, -call_id, call_id)
    others = vectors.where(state.contributed == own, 0, state.contributed)
    is_last = vectors.where(vectors.largest(others * others) == 0, 1, 0)
    closed = vectors.where(others > 0, -others, others)
    contributed = vectors.where(completes == 1, closed, state.contributed)
    closing = vectors.where(is_closed == 1, state.position, state.position + 1)
    position = vectors.where(
        completes == 1, vectors.where(is_last == 1, next_position, closing), state.position
    )
    # Where nobody contributes, a round that somebody waits for begins at once.
    waits = vectors.where(state.wanted >= 0, 1, 0)
    goal = vectors.smallest(vectors.where(waits == 1, state.wanted, NEVER * MAX_CALLS))
    leaps = vectors.where(there == 0, 1, 0) * vectors.largest(waits) * (1 - is_closed)
    leaps = leaps * vectors.where(goal > position, 1, 0)
    position = vectors.where(leaps == 1, goal, position)
    released = waits * vectors.where(position >= state.wanted, 1, 0)
    wanted = vectors.where(released == 1, NOTHING, state.wanted)
    after = Rounds(position, state.begins, contributed, wanted)
    left_over = is_full * (1 - completes) + completes * (1 - is_last)
    able = left_over * waits * (1 - released) * vectors.where(contributed == 0, 0, 1)
    return RoundDecision(after, completes, released, able)
