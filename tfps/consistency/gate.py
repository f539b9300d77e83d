"""Where workers wait on a server before they start a step: the thin shell around `clock`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency import clock
from tfps.consistency.clock import Clocks, Decision
from tfps.consistency.server_ledger import ServerLedger

TOKEN = 1  # says nothing: who gets one looks at the clocks again


class Gate(Protocol):
    """When a server answers a worker's push. All but `wait` run under the server's mutex."""

    def enter(self, slot: tf.Tensor, accepted: tf.Tensor) -> None:
        """Trace what a worker's entry changes."""

    def leave(self) -> None:
        """Trace what follows when somebody has left, of itself or not."""

    def end_step(self, slot: tf.Tensor, counts: tf.Tensor) -> tf.Tensor | None:
        """Trace the end of a worker's step; answers whether it has to wait, None: never.

        Args:
            slot: the worker.
            counts: whether the step does; one that was refused does not.
        """

    def wait(self, slot: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]) -> Sequence[tf.Tensor]:
        """Trace waiting until the worker may go on; answers what is read then.

        Args:
            slot: the worker.
            read: called under the mutex.
        """

    def destroy(self) -> None:
        """Free what the gate holds on the server."""


class OpenGate:
    """Nobody waits."""

    def enter(self, slot: tf.Tensor, accepted: tf.Tensor) -> None:
        """Nothing follows."""

    def leave(self) -> None:
        """Nothing follows."""

    def end_step(self, slot: tf.Tensor, counts: tf.Tensor) -> None:
        """Nobody has to wait."""

    def destroy(self) -> None:
        """Nothing is held."""

    def wait(self, slot: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]) -> Sequence[tf.Tensor]:
        return read()


class _TensorVectors:
    """`clock.Vectors` of TensorFlow."""

    def where(self, condition: Any, yes: Any, no: Any) -> tf.Tensor:
        return tf.where(condition, tf.cast(yes, tf.int64), tf.cast(no, tf.int64))

    def smallest(self, values: Any) -> tf.Tensor:
        return tf.reduce_min(values)

    def largest(self, values: Any) -> tf.Tensor:
        return tf.reduce_max(values)


class BoundedGate:
    """A worker waits while it is more than a bound of steps ahead of the slowest.

    Waiting is taking a token from a queue of the worker's own, outside of the mutex, which costs
    the server no thread. Whoever moves a clock, or lets a worker out, puts a token into the queues
    of those that need not wait any more; they look again before they go on, so a token too many
    does no harm.

    Args:
        ledger: the server's books.
        bound_steps: how far ahead a worker may start.
    """

    def __init__(self, ledger: ServerLedger, *, bound_steps: int) -> None:
        self._ledger, self._bound_steps = ledger, bound_steps
        self._vectors = _TensorVectors()

    def enter(self, slot: tf.Tensor, accepted: tf.Tensor) -> None:
        is_new = self._one_hot(slot) * tf.cast(accepted, tf.int64)
        state = self._state().entered(is_new, vectors=self._vectors)
        self._decide(state, asking=tf.zeros_like(is_new))

    def leave(self) -> None:
        self._decide(self._state(), asking=tf.zeros([self._ledger.books.slots], tf.int64))

    def end_step(self, slot: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        worker = self._one_hot(slot)
        steps = worker * tf.cast(counts, tf.int64)
        state = self._state().ticked(steps, vectors=self._vectors)
        return self._is_blocked(self._decide(state, asking=steps))

    def wait(self, slot: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]) -> Sequence[tf.Tensor]:
        worker = self._one_hot(slot)

        def look_again(_: tf.Tensor) -> tuple[tf.Tensor]:
            token = self._take_token(slot)
            with tf.control_dependencies([token]), self._ledger.locked():
                decision = self._decide(self._state(), asking=worker)
            return (self._is_blocked(decision),)

        (end,) = tf.while_loop(lambda blocked: blocked, look_again, (tf.constant(True),))
        with tf.control_dependencies([end]), self._ledger.locked():
            return read()

    @staticmethod
    def _is_blocked(decision: Decision) -> tf.Tensor:
        return tf.reduce_any(decision.blocked == 1)

    def destroy(self) -> None:
        """Free the queues."""
        for slot in range(self._ledger.books.slots):
            with tf.init_scope(), private.placed_on(self._ledger.device):
                tf.raw_ops.DestroyResourceOp(resource=self._queue(slot), ignore_lookup_error=True)

    def _one_hot(self, slot: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(slot, self._ledger.books.slots, dtype=tf.int64)

    def _state(self) -> Clocks:
        books, cells = self._ledger.books, self._ledger.cells()
        parts = [
            cells[account(0) : account(0) + books.slots]
            for account in (books.clock, books.active, books.waiting)
        ]
        return Clocks(*parts)

    def _store(self, state: Clocks) -> None:
        books = self._ledger.books
        for account, values in ((books.clock, state.clocks), (books.waiting, state.waiting)):
            self._ledger.write(account(0) + tf.range(books.slots), values)

    def _decide(self, state: Clocks, *, asking: tf.Tensor) -> Decision:
        """Write what follows and wake those that may go on."""
        decision = clock.decide(
            state, asking=asking, bound_steps=self._bound_steps, vectors=self._vectors
        )
        self._store(decision.after)
        self._ledger.raise_to(self._ledger.books.LARGEST_GAP, decision.gap)
        tf.cond(
            tf.reduce_any(decision.released == 1),
            lambda: self._wake(decision.released),
            lambda: tf.constant(0),
        )
        return decision

    def _wake(self, released: tf.Tensor) -> tf.Tensor:
        for slot in range(self._ledger.books.slots):

            def put(slot: int = slot) -> tf.Tensor:
                tf.raw_ops.QueueEnqueueV2(
                    handle=self._queue(slot), components=[tf.constant(TOKEN, tf.int64)]
                )
                return tf.constant(0)

            tf.cond(released[slot] == 1, put, lambda: tf.constant(0))
        return tf.constant(0)

    def _take_token(self, slot: tf.Tensor) -> tf.Tensor:
        def take(number: int) -> tf.Tensor:
            (token,) = tf.raw_ops.QueueDequeueV2(
                handle=self._queue(number), component_types=[tf.int64]
            )
            return tf.ensure_shape(token, [])

        slots = range(self._ledger.books.slots)
        return tf.switch_case(tf.cast(slot, tf.int32), [lambda s=s: take(s) for s in slots])

    def _queue(self, slot: int) -> tf.Tensor:
        return tf.raw_ops.FIFOQueueV2(
            component_types=[tf.int64],
            shapes=[[]],
            # TensorFlow lets variables lie in containers that it refuses for queues.
            container=re.sub(r"[^\w.\-/]|_", "-", self._ledger.container),
            shared_name=f"gate_{slot}",
        )
