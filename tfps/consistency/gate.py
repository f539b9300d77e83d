"""The gate of a server, at which workers wait to start a step: a thin shell around `clock`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from tfps.consistency.clock import Clocks, Decision, decide
from tfps.consistency.server_ledger import ServerLedger
from tfps.consistency.waiters import TensorVectors, Waiters


class Membership(Protocol):
    """Reacts to workers that join and leave; called under the server's mutex."""

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        """Trace the changes after a worker has joined."""

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        """Trace the changes after a worker has left or was evicted."""


class MembershipGroup:
    """Notifies several `Membership` objects of workers that join and leave.

    Args:
        places: the objects that react to them.
    """

    def __init__(self, places: Sequence[Membership]) -> None:
        self._places = places

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        for place in self._places:
            place.enter(worker, accepted)

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        for place in self._places:
            place.leave(worker, leaves)


class Gate(Membership, Protocol):
    """Decides when a server that applies each gradient on arrival replies to a worker's push."""

    def end_step(
        self, worker: tf.Tensor, *, counts: tf.Tensor, clock: tf.Tensor
    ) -> tf.Tensor | None:
        """Trace the end of a worker's step. Returns whether it has to wait; None: it never has to.

        Args:
            worker: the worker's index.
            counts: whether the step counts; a refused one does not.
            clock: the worker's completed steps, with this one, the same on all servers.
        """

    def wait(
        self, worker: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]
    ) -> Sequence[tf.Tensor]:
        """Trace waiting until the worker may continue. Returns the result of ``read`` after it.

        Args:
            worker: the worker's index.
            read: called under the mutex.
        """


class OpenGate:
    """A gate at which no worker waits."""

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        """Do nothing."""

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        """Do nothing."""

    def end_step(self, worker: tf.Tensor, *, counts: tf.Tensor, clock: tf.Tensor) -> None:
        """Return None: no worker has to wait."""

    def wait(
        self, worker: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]
    ) -> Sequence[tf.Tensor]:
        return read()


class BoundedGate:
    """Lets a worker wait while it is more than a bound of steps ahead of the slowest.

    Args:
        ledger: the server's ledger.
        bound_steps: the largest lead with which a worker may start.
    """

    def __init__(self, ledger: ServerLedger, *, bound_steps: int) -> None:
        self._ledger, self._bound_steps = ledger, bound_steps
        self._waiters, self._vectors = Waiters(ledger), TensorVectors()

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        is_new = self._ledger.one_hot(worker) * tf.cast(accepted, tf.int64)
        state = self._state().after_entry(is_new, vectors=self._vectors)
        self._decide(state, asking=tf.zeros_like(is_new))

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        self._decide(self._state(), asking=tf.zeros([self._ledger.layout.workers], tf.int64))

    def end_step(self, worker: tf.Tensor, *, counts: tf.Tensor, clock: tf.Tensor) -> tf.Tensor:
        mask = self._ledger.one_hot(worker) * tf.cast(counts, tf.int64)
        state = self._state().after_step(mask, clock, vectors=self._vectors)
        return self._is_blocked(self._decide(state, asking=mask))

    def wait(
        self, worker: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]
    ) -> Sequence[tf.Tensor]:
        mask = self._ledger.one_hot(worker)

        def decide_again(_: tf.Tensor) -> tuple[tf.Tensor]:
            token = self._waiters.take_token(worker)
            with tf.control_dependencies([token]), self._ledger.locked():
                decision = self._decide(self._state(), asking=mask)
            return (self._is_blocked(decision),)

        (end,) = tf.while_loop(lambda blocked: blocked, decide_again, (tf.constant(True),))
        with tf.control_dependencies([end]), self._ledger.locked():
            return read()

    @staticmethod
    def _is_blocked(decision: Decision) -> tf.Tensor:
        return tf.reduce_any(decision.blocked == 1)

    def _state(self) -> Clocks:
        layout = self._ledger.layout
        return Clocks(*self._ledger.by_worker(layout.clock, layout.active, layout.waiting))

    def _decide(self, state: Clocks, *, asking: tf.Tensor) -> Decision:
        """Decide, write the new state, and wake the workers that may continue."""
        layout = self._ledger.layout
        decision = decide(
            state, asking=asking, bound_steps=self._bound_steps, vectors=self._vectors
        )
        after = decision.after
        self._ledger.write_by_worker({layout.clock: after.clocks, layout.waiting: after.waiting})
        self._ledger.raise_to(layout.LARGEST_GAP, decision.gap)
        self._waiters.wake(decision.released)
        return decision
