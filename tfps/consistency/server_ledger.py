"""A server's books as named resources: the thin shell around `ledger`'s decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import ServerVariable
from tfps.consistency.histogram import BINS_PER_DOUBLING, DURATION_BINS
from tfps.consistency.ledger import Books, Entries

# Tickets are remembered in a window of this many. One that is still open when so many later ones
# have been applied counts as applied: it is dropped rather than ever applied twice.
APPLIED_WINDOW_TICKETS = 1 << 16
# Optimizer calls of one step; a growing number (ticket, stage) is ticket * 16 + stage.
MAX_STAGES = 16


class GraphLogic:
    """`ledger.Logic` on scalar tensors; makes each constant once."""

    def __init__(self) -> None:
        self._constants: dict[int, tf.Tensor] = {}

    def _integer(self, value: Any) -> tf.Tensor:
        if tf.is_tensor(value):
            return value
        if value not in self._constants:
            self._constants[value] = _integer(value)
        return self._constants[value]

    def both(self, left: Any, right: Any) -> tf.Tensor:
        return tf.logical_and(left, right)

    def choose(self, condition: Any, yes: Any, no: Any) -> tf.Tensor:
        return tf.where(condition, self._integer(yes), self._integer(no))

    def smaller(self, left: Any, right: Any) -> tf.Tensor:
        return tf.minimum(self._integer(left), self._integer(right))

    def position_of_smallest(
        self, read: Callable[[Any], Any], *, begin: int, capacity: int, count: Any
    ) -> tf.Tensor:
        positions = tf.range(capacity, dtype=tf.int64)
        values = tf.where(positions < count, read(begin + positions), tf.int64.max)
        return tf.argmin(values)


def _integer(value: Any) -> tf.Tensor:
    """An int64 tensor; a Python number becomes a constant, with no cast to run on the server."""
    return value if tf.is_tensor(value) else tf.constant(value, tf.int64)


def _rank(cell: Any) -> int | None:
    """The rank of a cell that is only known when the server runs."""
    return cell.shape.rank if tf.is_tensor(cell) else None


class ServerLedger:
    """One server's books, its window of applied tickets and its mutex.

    Args:
        device: the server.
        container: the job's container.
        slots: how many workers can take part.
    """

    def __init__(self, *, device: str, container: str, slots: int) -> None:
        self.device, self.container, self.books = device, container, Books(slots)
        self._cells = ServerVariable(
            np.array(self.books.blank(), np.int64),
            device=device,
            container=container,
            shared_name="ledger",
            trainable=False,
            name="ledger",
        )
        self._applied = ServerVariable(
            np.full([APPLIED_WINDOW_TICKETS], -1, np.int64),
            device=device,
            container=container,
            shared_name="applied_tickets",
            trainable=False,
            name="applied_tickets",
        )

    def _mutex(self) -> tf.Tensor:
        return tf.raw_ops.MutexV2(container=self.container, shared_name="mutex")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """While tracing a server function: everything inside runs under the server's mutex.

        Nothing inside may block: a worker that is killed leaves its request running, and a blocked
        one would keep the mutex for good.
        """
        graph = private.current_graph()
        lock = tf.raw_ops.MutexLock(mutex=self._mutex())
        before = len(graph.get_operations())
        with tf.control_dependencies([lock]):
            yield
        inside = [
            operation
            for operation in graph.get_operations()[before:]
            if operation.op_def.is_stateful and operation.type != "VarHandleOp"
        ]
        with tf.control_dependencies(inside):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)

    def entries(self) -> Entries:
        """The books as they are at this point of the trace."""
        cells = self._cells.read_value()
        totals = tf.unstack(cells[: self.books.GLOBALS], num=self.books.GLOBALS)

        def read(cell: Any) -> tf.Tensor:
            is_total = isinstance(cell, int) and cell < self.books.GLOBALS
            return totals[cell] if is_total else tf.gather(cells, cell)

        return Entries(books=self.books, read=read, logic=GraphLogic())

    def post(self, entries: Entries) -> None:
        """Write all entries at once."""
        # Every operation costs the server time on every push: what is known now is one constant.
        fixed = [(cell, value) for cell, value in entries.writes if isinstance(cell, int)]
        single = [write for write in entries.writes if _rank(write[0]) == 0]
        several = [write for write in entries.writes if _rank(write[0]) == 1]
        cells = [tf.constant([cell for cell, _ in fixed], tf.int64)]
        values = [tf.stack([_integer(value) for _, value in fixed])]
        if single:
            cells.append(tf.stack([cell for cell, _ in single]))
            values.append(tf.stack([_integer(value) for _, value in single]))
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._cells.handle,
            indices=tf.concat(cells + [cell for cell, _ in several], 0),
            updates=tf.concat(values + [value for _, value in several], 0),
        )

    def cells(self) -> tf.Tensor:
        """A copy of the whole vector."""
        return tf.identity(self._cells.read_value())

    def key(self, ticket: tf.Tensor, stage: int) -> tf.Tensor:
        return ticket * MAX_STAGES + stage

    def applied_key(self, ticket: tf.Tensor) -> tf.Tensor:
        """The largest key applied in this ticket's cell of the window."""
        return tf.raw_ops.ResourceGather(
            resource=self._applied.handle,
            indices=ticket % APPLIED_WINDOW_TICKETS,
            dtype=tf.int64,
        )

    def remember(
        self, *, fresh: tf.Tensor, ticket: tf.Tensor, key: tf.Tensor, applied: tf.Tensor
    ) -> None:
        """Note that a key was applied."""
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._applied.handle,
            indices=ticket % APPLIED_WINDOW_TICKETS,
            updates=tf.where(fresh, key, applied),
        )

    def count_durations(self, entries: Entries, kind: int, microseconds: tf.Tensor) -> None:
        """Add durations to their histograms, each unless it is -1 (not measured).

        Args:
            entries: collects the writes.
            kind: of the first duration; the others are of the kinds after it.
            microseconds: int64 vector.
        """
        measured = microseconds >= 0
        logarithm = tf.math.log(tf.cast(tf.maximum(microseconds, 1), tf.float32)) / np.log(2.0)
        position = tf.minimum(tf.cast(BINS_PER_DOUBLING * logarithm, tf.int64), DURATION_BINS - 1)
        kinds = kind + tf.range(tf.size(microseconds, out_type=tf.int64), dtype=tf.int64)
        cells = self.books.duration(kinds, position)
        cells = tf.where(measured, cells, self.books.SCRATCH)
        entries.write(cells, entries.read(cells) + 1)

    def destroy(self) -> None:
        """Free the books and the mutex."""
        self._cells.destroy()
        self._applied.destroy()
        with tf.init_scope(), private.placed_on(self.device):
            tf.raw_ops.DestroyResourceOp(resource=self._mutex(), ignore_lookup_error=True)
