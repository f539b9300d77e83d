"""Rounds: a server applies one mean of many workers' gradients. Pure: NumPy or TensorFlow vectors.

A worker's step contributes once to each optimizer call of one round. The server goes on to the next
call, or round, when the required number of workers has contributed, or all that are left. Its
*position* is ``round * MAX_CALLS + call_number``.

A worker takes part from a round on that it has agreed with all servers, so a round has the same
members everywhere. The number of rounds need not be known: a worker without a ticket leaves, and
the others' round is complete without it.

A contribution belongs to an *optimizer call*: an optimizer with the variables whose gradients it
gets, which has a number. `fit` has one. If scheduled functions contribute to several calls in one
round, no request can apply all of them. Such a round is *closed* when it is complete: it takes no
more contributions, and for each call one of its contributors applies the mean. Then the next round
begins.

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
    """The state of a server's rounds; vectors have one item for each worker.

    Args:
        position: the server's position, a scalar.
        begins: the first round in which the worker takes part.
        contributed: the optimizer call to which the worker has contributed at this position; 0 if
            it has not; below 0 if the round is closed and the call must still be applied.
        wanted: the position for which the worker waits.
    """

    position: Any
    begins: Any
    contributed: Any
    wanted: Any

    @property
    def number(self) -> Any:
        """The number of the current round."""
        return self.position // MAX_CALLS

    @property
    def upcoming(self) -> Any:
        """The number of the first round that has not begun, or begins now."""
        return (self.position + MAX_CALLS - 1) // MAX_CALLS

    def is_closed(self, *, vectors: Vectors) -> Any:
        """Return 1 while optimizer calls of the current round are applied one after the other."""
        return vectors.where(vectors.smallest(self.contributed) < 0, 1, 0)

    def members(self, *, vectors: Vectors) -> Any:
        """Return 1 for workers that take part in the current round."""
        return vectors.where(self.begins <= self.number, 1, 0)

    def after_expect(self, mask: Any, *, vectors: Vectors) -> Rounds:
        """Return the state in which workers are expected, and take part immediately.

        No round then runs without them.

        Args:
            mask: 1 for those workers.
            vectors: operations.
        """
        return replace(self, begins=vectors.where(mask == 1, self.number, self.begins))

    def after_entry(self, mask: Any, *, vectors: Vectors) -> Rounds:
        """Return the state after workers have joined, without contributions."""
        return self._without(mask, begins=self.begins, vectors=vectors)

    def after_take_part(self, mask: Any, number: Any, *, vectors: Vectors) -> Rounds:
        """Return the state in which workers take part from a round on, and wait for it.

        If it has begun already, they do not wait. They take part from the next one on, and will
        agree with the other servers on it.

        Args:
            mask: 1 for those workers.
            number: the number of the round, a scalar.
            vectors: operations.
        """
        later = vectors.where(number > self.upcoming, number, self.upcoming)
        waiting = self.after_await(mask, number, vectors=vectors)
        return replace(waiting, begins=vectors.where(mask == 1, later, self.begins))

    def after_await(self, mask: Any, number: Any, *, vectors: Vectors) -> Rounds:
        """Return the state in which workers wait for a round, unless it has begun already."""
        goal = vectors.where(number >= self.upcoming, number * MAX_CALLS, NOTHING)
        return replace(self, wanted=vectors.where(mask == 1, goal, self.wanted))

    def after_leave(self, mask: Any, *, vectors: Vectors) -> Rounds:
        """Return the state without some workers. Their contributions stay in their round.

        Except those to an optimizer call of a closed round that no other worker can apply.
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

    def after_regroup(self, expected: Any, *, vectors: Vectors) -> Rounds:
        """Return the state in which the current round was given up; the next one begins.

        Args:
            expected: 1 for the workers without which it is not completed.
            vectors: operations.
        """
        number = self.number + 1
        return Rounds(
            number * MAX_CALLS,
            vectors.where(expected == 1, number, self.begins),
            self.contributed * 0,
            self.wanted * 0 + NOTHING,
        )

    def accepts(self, mask: Any, position: Any, *, vectors: Vectors) -> Any:
        """Return whether a contribution is in time.

        Args:
            mask: 1 for the worker.
            position: the position of its parameters, with the call.
            vectors: operations.
        """
        is_free = vectors.where(self.contributed == 0, 1, 0)
        takes_part = vectors.largest(self.members(vectors=vectors) * mask * is_free)
        in_time = vectors.where(position == self.position, 1, 0)
        return in_time * takes_part * (1 - self.is_closed(vectors=vectors))

    def can_apply(self, mask: Any, position: Any, *, call_id: int = 1, vectors: Vectors) -> Any:
        """Return whether a waiting worker can apply a call to which it has contributed.

        Args:
            mask: 1 for the worker.
            position: the position of its parameters.
            call_id: the call that its function can apply.
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
        """Return the state after a worker's push; it waits for the position that it needs.

        Args:
            mask: 1 for the worker.
            accepted: 1 if the push counts; after a late one the worker continues immediately.
            alive: 1 if the server knows this incarnation of the worker.
            next_position: the position after the push's call in its round.
            call_id: the number of the push's call.
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
    """The state after a change, and what servers and workers have to do then.

    Args:
        after: the new state.
        completes: 1 if the sum of the optimizer call's contributions is to be applied, a scalar.
        released: 1 for workers that waited and may continue.
        able: 1 for waiting workers that could complete the round, which is still to be done.
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
    """Decide whether the position is complete, and which workers may continue.

    Args:
        state: the current state.
        required: the number of contributions that complete it, if enough workers take part.
        next_position: the position after this one.
        may_apply: 1 if the current request can apply the contributions to the optimizer call.
        call_id: the call that the current request can apply.
        vectors: operations.
    """
    members = state.members(vectors=vectors)
    is_closed = state.is_closed(vectors=vectors)
    has_contributed = vectors.where(state.contributed > 0, 1, 0)
    # A worker that waits for a later round, if servers differ, contributes nothing to this one.
    is_free = vectors.where(state.wanted < 0, 1, has_contributed)
    there = vectors.sum(members * is_free)
    needed = vectors.where(there < required, there, required)
    quorum = vectors.where(needed < 1, 1, needed)
    counted = vectors.sum(members * has_contributed)
    is_full = vectors.where(counted >= quorum, 1, is_closed)
    completes = may_apply * is_full
    # The calls of other requests; a request without an optimizer call of its own changes none.
    own = vectors.where(is_closed == 1, -call_id, call_id)
    others = vectors.where(state.contributed == own, 0, state.contributed)
    is_last = vectors.where(vectors.largest(others * others) == 0, 1, 0)
    closed = vectors.where(others > 0, -others, others)
    contributed = vectors.where(completes == 1, closed, state.contributed)
    closing = vectors.where(is_closed == 1, state.position, state.position + 1)
    position = vectors.where(
        completes == 1, vectors.where(is_last == 1, next_position, closing), state.position
    )
    # If no worker contributes, a round for which some worker waits begins at once.
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
