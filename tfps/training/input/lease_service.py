"""Answer workers' requests on the chief for the shard and batch of a ticket."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.server_function import trace_server_function
from tfps.consistency.shard_book import BatchPlace, ShardBook

NO_SHARD = -1
_services: weakref.WeakKeyDictionary[Any, LeaseService] = weakref.WeakKeyDictionary()


class LeaseService:
    """Leases batches of all inputs of a coordinator with one function, so one closure fits all.

    Args:
        device: of the chief.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._books: weakref.WeakValueDictionary[int, ShardBook] = weakref.WeakValueDictionary()
        self._names = itertools.count(1)
        self._function = trace_server_function(
            self._serve, device=device, signature=[tf.TensorSpec([6], tf.int64)]
        )

    @classmethod
    def for_coordinator(cls, coordinator: Any) -> LeaseService:
        """Return the coordinator's service, created on first use."""
        if coordinator not in _services:
            _services[coordinator] = cls(coordinator.strategy.runtime.topology.chief)
        return _services[coordinator]

    def open(self, book: ShardBook) -> int:
        """Serve a `ShardBook` until it is closed or collected; return its name for requests."""
        name = next(self._names)
        self._books[name] = book
        return name

    def close(self, name: int) -> None:
        """Forget the book of a name; later requests find no batch."""
        self._books.pop(name, None)

    def ask(
        self,
        name: tf.Tensor,
        *,
        worker: tf.Tensor,
        position: tf.Tensor,
        returns_ticket: bool,
        ended: Any,
    ) -> list[tf.Tensor]:
        """Return the shard and index of a ticket's batch, or `NO_SHARD`; traced on a worker.

        Args:
            name: of the book.
            worker: its index.
            position: of the ticket in its run.
            returns_ticket: whether the ticket goes back if there is no batch.
            ended: the shard and the index where the worker found nothing just now, or `NO_SHARD`.
        """
        asked = tf.stack(
            [name, worker, position, tf.constant(int(returns_ticket), tf.int64), *ended]
        )
        (place,) = tf.raw_ops.RemoteCall(
            target=self._device, args=[asked], Tout=[tf.int64], f=self._function
        )
        private.run_independently(place.op)
        return tf.unstack(tf.ensure_shape(place, [2]))

    def _serve(self, asked: tf.Tensor) -> list[tf.Tensor]:
        return [tf.numpy_function(self._find_place, [asked], tf.int64)]

    def _find_place(self, asked: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        name, worker, position, returns_ticket, *ended = (int(value) for value in asked)
        book, place = self._books.get(name), None
        if book is not None:
            if ended[0] != NO_SHARD:
                book.end(BatchPlace(*ended))
            place = book.find_place(position, worker=worker, may_wait=bool(returns_ticket))
        return np.array([NO_SHARD, 0] if place is None else place, np.int64)
