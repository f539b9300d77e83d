"""Let workers wait on a server, in queues of tokens, without occupying server threads."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.named_resource import NamedResource
from tfps.bridge.variables.server_trace import to_constant
from tfps.consistency.server_ledger import ServerLedger

TOKEN = 1  # has no meaning: a woken worker looks at the ledger again


class TensorVectors:
    """The operations of `vectors.Vectors` for tensors."""

    def where(self, condition: Any, if_true: Any, if_false: Any) -> tf.Tensor:
        return tf.where(condition, to_constant(if_true), to_constant(if_false))

    def sum(self, values: Any) -> tf.Tensor:
        return tf.reduce_sum(values)

    def smallest(self, values: Any) -> tf.Tensor:
        return tf.reduce_min(values)

    def largest(self, values: Any) -> tf.Tensor:
        return tf.reduce_max(values)


class Waiters:
    """Keeps a queue for each worker, which blocks until the worker may continue.

    A change that lets workers continue puts a token into each of their queues. They look at the
    ledger again before they continue, so a token too many does no harm.

    Args:
        ledger: the server's ledger.
    """

    def __init__(self, ledger: ServerLedger) -> None:
        self._ledger = ledger
        # TensorFlow refuses some names of containers for queues that it allows for variables.
        container = re.sub(r"[^\w.\-/]|_", "-", ledger.contents.container)
        self._queues = [
            NamedResource(container, f"gate_{worker}", ledger.contents.device, _open_queue)
            for worker in range(ledger.layout.workers)
        ]
        ledger.contents.add(self._queues)

    def wake(self, released: tf.Tensor) -> None:
        """Put a token into the queue of each worker whose item is 1; other items are 0."""

        # Not a condition for each worker: two more functions per worker to trace, send and prepare.
        def wake_some() -> tf.Tensor:
            counts = tf.unstack(released[:, None], num=self._ledger.layout.workers)
            for worker, count in enumerate(counts):
                self._put(worker, tf.fill(count, to_constant(TOKEN)))
            return tf.constant(0)

        tf.cond(tf.reduce_any(released == 1), wake_some, lambda: tf.constant(0))

    def wake_all(self) -> None:
        """Put a token into the queue of each worker."""
        for worker in range(self._ledger.layout.workers):
            self._put(worker, tf.constant([TOKEN], tf.int64))

    def take_token(self, worker: tf.Tensor) -> tf.Tensor:
        """Wait until a worker's queue has a token, and remove it, without holding the mutex."""

        def take(index: int) -> tf.Tensor:
            (token,) = tf.raw_ops.QueueDequeueV2(
                handle=self.queue_of(index), component_types=[tf.int64]
            )
            return tf.ensure_shape(token, [])

        workers = range(self._ledger.layout.workers)
        return tf.switch_case(tf.cast(worker, tf.int32), [lambda s=s: take(s) for s in workers])

    def _put(self, worker: int, tokens: tf.Tensor) -> None:
        tf.raw_ops.QueueEnqueueManyV2(handle=self.queue_of(worker), components=[tokens])

    def queue_of(self, worker: int) -> tf.Tensor:
        return self._queues[worker].handle()


def _open_queue(container: str, shared_name: str) -> tf.Tensor:
    return tf.raw_ops.FIFOQueueV2(
        component_types=[tf.int64], shapes=[[]], container=container, shared_name=shared_name
    )
