"""Keep a server's rounds in its ledger; the decisions are in `rounds`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from tfps.consistency import rounds
from tfps.consistency.ledger import NEVER
from tfps.consistency.rounds import RoundDecision, Rounds
from tfps.consistency.server_ledger import ServerLedger
from tfps.consistency.waiters import TensorVectors, Waiters

Apply = Callable[[tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class Contribution:
    """A worker's push, as a contribution to a server's rounds.

    Args:
        worker: the worker's index.
        incarnation: the worker's incarnation.
        alive: whether it is the incarnation that the server knows.
        position: the position of the parameters of its gradient.
        next_position: the position after that in its round.
        call_id: the number of the optimizer call; see `rounds`.
    """

    worker: tf.Tensor
    incarnation: tf.Tensor
    alive: tf.Tensor
    position: tf.Tensor
    next_position: tf.Tensor
    call_id: int = 1


class RoundGate:
    """Rounds on one server. All but `wait` run under the server's mutex.

    A worker's death may complete a round when no push comes that would apply it. So the workers
    that have contributed are woken then, and the first of them applies it.

    Args:
        ledger: the server's ledger.
        required: the number of contributions that complete a round, if enough workers take part.
    """

    def __init__(self, ledger: ServerLedger, *, required: int) -> None:
        self._ledger, self._required = ledger, required
        self._waiters, self._vectors = Waiters(ledger), TensorVectors()

    def expect(self, workers: tf.Tensor) -> None:
        """Expect workers that will join: no round is completed without them."""
        self._decide_on_membership(self._state().after_expect(workers, vectors=self._vectors))

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        """Record that a worker has joined; if unexpected, it takes part after `take_part_from`."""
        is_new = self._one_hot(worker, accepted)
        self._decide_on_membership(
            self._state().after_entry(is_new, vectors=self._vectors), wakes_all=True
        )

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        """Record that a worker does not take part any more."""
        gone = self._one_hot(worker, leaves)
        self._decide_on_membership(
            self._state().after_leave(gone, vectors=self._vectors), wakes_all=True
        )

    def regroup(self, worker: tf.Tensor, condition: tf.Tensor, *, joins: bool) -> None:
        """Give up the current round, and let its members join again as another group.

        They have added up gradients among themselves: where one of them is lost, the sums may hold
        its gradient, and those of the others come again. So no push of the old group counts. A
        worker that the group waits for changes nothing when it joins.

        Args:
            worker: the worker that joins, or that was evicted.
            condition: whether it does.
            joins: whether the other group has this worker.
        """
        layout, state = self._ledger.layout, self._state()
        (active,) = self._ledger.by_worker(layout.active)
        own = self._ledger.one_hot(worker)
        begins = tf.reduce_sum(own * state.begins)
        if joins:
            is_expected = tf.logical_and(begins < NEVER, tf.reduce_sum(own * active) == 0)
            needed = tf.logical_and(condition, tf.logical_not(is_expected))
        else:
            is_grouped = self._ledger.read(layout.IS_GROUPED) == 1
            needed = tf.logical_and(condition, tf.logical_and(is_grouped, begins < NEVER))
        fenced = active * (1 - own)
        after = state.after_regroup(fenced + own if joins else fenced, vectors=self._vectors)

        def change() -> tf.Tensor:
            self._store(after)
            self._ledger.write_by_worker({layout.active: active - fenced})
            gone = tf.reduce_sum(fenced)
            self._ledger.add(
                [layout.ACTIVE_WORKERS, layout.GENERATION, layout.REPEATED],
                tf.stack([-gone, 1, tf.minimum(gone, 1)]),
            )
            self._ledger.write(tf.constant(layout.VOIDED, tf.int64), state.position + 1)
            self._waiters.wake_all()
            return tf.constant(0)

        tf.cond(needed, change, lambda: tf.constant(0))

    def is_voided(self, position: tf.Tensor) -> tf.Tensor:
        """Return whether the round at a position was given up."""
        return self._ledger.read(self._ledger.layout.VOIDED) == position + 1

    def describe_group(self) -> tf.Tensor:
        """Return generation, updates, the number of the servers' values, and 1 for each member."""
        layout = self._ledger.layout
        cells = [self._ledger.read(c) for c in (layout.GENERATION, layout.REDUCED, layout.HOME)]
        begins, active = self._ledger.by_worker(layout.begins, layout.active)
        members = active * tf.cast(begins < NEVER, tf.int64)
        return tf.concat([tf.stack(cells), members], 0)

    def take_part_from(self, worker: tf.Tensor, alive: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Let a worker take part from a round on. Returns whether it has to wait for the round.

        It waits for expected workers, too: each gets its first ticket before any gets a second.
        """
        mask = self._one_hot(worker, alive)
        waits = self._decide_if_waiting(
            self._state().after_take_part(mask, number, vectors=self._vectors), mask
        )
        return tf.logical_and(alive, tf.logical_or(waits, self._is_worker_missing()))

    def await_round(self, worker: tf.Tensor, alive: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Let a worker wait for a round or a later one. Returns whether it has to wait."""
        mask = self._one_hot(worker, alive)
        return self._decide_if_waiting(
            self._state().after_await(mask, number, vectors=self._vectors), mask
        )

    def accepts(self, contribution: Contribution) -> tuple[tf.Tensor, Rounds]:
        """Return whether a contribution is in time, and the current rounds."""
        state, mask = self._state(), self._one_hot(contribution.worker, contribution.alive)
        return state.accepts(mask, contribution.position, vectors=self._vectors) == 1, state

    def push(
        self, contribution: Contribution, admission: tuple[tf.Tensor, Rounds], *, apply: Apply
    ) -> tf.Tensor:
        """Count a contribution, and apply the sums if it completes an optimizer call.

        Returns:
            Whether its worker has to wait.

        Args:
            contribution: the contribution.
            admission: the result of `accepts`.
            apply: traces the update from the sums of all contributions, if its argument holds.
        """
        accepted, state = admission
        mask = self._one_hot(contribution.worker, contribution.alive)
        state = state.after_push(
            self._ledger.one_hot(contribution.worker),
            accepted=tf.cast(accepted, tf.int64),
            alive=tf.cast(contribution.alive, tf.int64),
            next_position=contribution.next_position,
            call_id=contribution.call_id,
            vectors=self._vectors,
        )
        decision = self._decide(state, contribution, may_apply=tf.cast(accepted, tf.int64))
        self._store_after(decision, apply)
        return self._is_waiting(decision.after, mask)

    def wait(
        self, contribution: Contribution, apply: Apply, *, for_all: bool = False
    ) -> tf.Operation:
        """Trace waiting until the worker may continue, without holding the mutex.

        Args:
            contribution: the worker's contribution.
            apply: traces the update from the sums of all contributions, if its argument holds.
            for_all: whether it waits for expected workers as well.
        """
        mask = self._ledger.one_hot(contribution.worker)

        def decide_again(_: tf.Tensor) -> tuple[tf.Tensor]:
            token = self._waiters.take_token(contribution.worker)
            with tf.control_dependencies([token]), self._ledger.locked():
                state = self._state()
                may_apply = state.can_apply(
                    mask, contribution.position, call_id=contribution.call_id, vectors=self._vectors
                )
                decision = self._decide(state, contribution, may_apply=may_apply)
                self._store_after(decision, apply)
                blocked = self._is_waiting(decision.after, mask)
                if for_all:
                    blocked = tf.logical_or(blocked, self._is_worker_missing())
                blocked = tf.logical_and(blocked, self._takes_part(contribution))
            return (blocked,)

        (end,) = tf.while_loop(lambda blocked: blocked, decide_again, (tf.constant(True),))
        return end.op

    def position(self) -> tf.Tensor:
        """Return the server's position."""
        return self._ledger.read(self._ledger.layout.POSITION)

    def _one_hot(self, worker: tf.Tensor, condition: tf.Tensor) -> tf.Tensor:
        return self._ledger.one_hot(worker) * tf.cast(condition, tf.int64)

    def _is_worker_missing(self) -> tf.Tensor:
        """Return whether an expected worker has not joined yet."""
        layout = self._ledger.layout
        begins, active = self._ledger.by_worker(layout.begins, layout.active)
        return tf.reduce_any(tf.logical_and(begins < NEVER, active == 0))

    def _takes_part(self, contribution: Contribution) -> tf.Tensor:
        """Return whether the incarnation still takes part; a later one may have replaced it."""
        return self._ledger.open().is_alive(contribution.worker, contribution.incarnation)

    def _state(self) -> Rounds:
        layout = self._ledger.layout
        vectors = self._ledger.by_worker(layout.begins, layout.contributed, layout.wanted)
        return Rounds(self.position(), *vectors)

    def _store(self, state: Rounds) -> None:
        layout = self._ledger.layout
        self._ledger.write_by_worker(
            {
                layout.begins: state.begins,
                layout.contributed: state.contributed,
                layout.wanted: state.wanted,
            }
        )
        self._ledger.write(tf.constant(layout.POSITION, tf.int64), state.position)

    def _decide(
        self, state: Rounds, contribution: Contribution, *, may_apply: tf.Tensor
    ) -> RoundDecision:
        return rounds.decide(
            state,
            required=self._required,
            next_position=contribution.next_position,
            may_apply=may_apply,
            call_id=contribution.call_id,
            vectors=self._vectors,
        )

    def _store_after(self, decision: RoundDecision, apply: Apply) -> None:
        """Apply a complete call, write the new state, and wake the workers that may continue."""
        with tf.control_dependencies([apply(decision.completes == 1)]):
            self._store(decision.after)
            self._waiters.wake(decision.released + decision.able)

    def _decide_on_membership(self, state: Rounds, *, wakes_all: bool = False) -> RoundDecision:
        """Decide after a change of members, and wake all workers or those that may continue."""
        decision = rounds.decide(
            state, required=self._required, next_position=0, may_apply=0, vectors=self._vectors
        )
        self._store(decision.after)
        if wakes_all:
            self._waiters.wake_all()
        else:
            self._waiters.wake(decision.released + decision.able)
        return decision

    def _decide_if_waiting(self, state: Rounds, mask: tf.Tensor) -> tf.Tensor:
        return self._is_waiting(self._decide_on_membership(state).after, mask)

    def _is_waiting(self, state: Rounds, mask: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(tf.logical_and(mask == 1, state.wanted >= 0))
