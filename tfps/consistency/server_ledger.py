"""Keep a server's ledger in named resources; the decisions are in `ledger`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.server_function import collect_stateful_operations
from tfps.bridge.variables.named_resource import NamedResource, open_mutex
from tfps.bridge.variables.resource_holder import ResourceHolder
from tfps.bridge.variables.server_trace import to_constant
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.consistency.applied_window import blank_window
from tfps.consistency.histogram import bin_bounds
from tfps.consistency.ledger import Ledger, LedgerLayout

# Their names on servers.
MUTEX, LEDGER, APPLIED = "mutex", "ledger", "applied_pushes"


Cells: TypeAlias = np.ndarray[Any, Any]


class GraphLogic:
    """The operations of `Logic` for scalar tensors."""

    def logical_and(self, left: Any, right: Any) -> tf.Tensor:
        return tf.logical_and(left, right)

    def choose(self, condition: Any, if_true: Any, if_false: Any) -> tf.Tensor:
        return tf.where(condition, to_constant(if_true), to_constant(if_false))

    def minimum(self, left: Any, right: Any) -> tf.Tensor:
        return tf.minimum(to_constant(left), to_constant(right))

    def position_of_smallest(
        self, read: Callable[[Any], Any], *, begin: int, capacity: int, count: Any
    ) -> tf.Tensor:
        positions = tf.range(capacity, dtype=tf.int64)
        values = tf.where(positions < count, read(begin + positions), tf.int64.max)
        return tf.argmin(values)


def _vector(values: Sequence[Any], dtype: tf.DType = tf.int64) -> tf.Tensor:
    """Return numbers and scalar tensors as one vector: a constant if all are numbers."""
    if any(map(tf.is_tensor, values)):
        return tf.stack([to_constant(value, dtype) for value in values])
    return tf.constant(values, dtype)


def collect_writes(ledger: Ledger) -> tuple[tf.Tensor, tf.Tensor]:
    """Return cells, each once, and their new values."""
    cells, values = zip(*ledger.writes, strict=True)
    return _vector(cells), _vector(values)


def collect_additions(ledger: Ledger) -> tuple[tf.Tensor, tf.Tensor]:
    """Return cells, some of them several times, and the amounts to add."""
    conditions, cells, amounts = zip(*ledger.additions, strict=True)
    return _vector(cells), tf.cast(_vector(conditions, tf.bool), tf.int64) * _vector(amounts)


def _find_bins(bounds: tf.Tensor, durations: tf.Tensor) -> tf.Tensor:
    """Return the bin of each duration: the number of reached bounds. XLA has no `UpperBound`."""
    return tf.reduce_sum(tf.cast(tf.expand_dims(durations, 1) >= bounds, tf.int64), 1)


class GraphLedger(Ledger):
    """The operations of `ledger.Ledger` on the cells of a server.

    Args:
        layout: the layout of the ledger.
        cells: the values of the cells.
    """

    def __init__(self, layout: LedgerLayout, cells: tf.Tensor) -> None:
        self._cells = cells
        super().__init__(
            layout=layout, read=lambda cell: tf.gather(cells, cell), logic=GraphLogic()
        )

    def compute_cells(self) -> tf.Tensor:
        """Return all cells after the changes."""
        cells = self._cells
        if self.writes:
            written, values = collect_writes(self)
            cells = tf.tensor_scatter_nd_update(cells, written[:, None], values)
        if self.additions:
            added, amounts = collect_additions(self)
            cells = tf.tensor_scatter_nd_add(cells, added[:, None], amounts)
        return cells


@contextlib.contextmanager
def under_mutex(mutex: tf.Tensor) -> Iterator[None]:
    """Run all operations traced in this context under a mutex of the server.

    They must not block: a worker that is killed leaves its request running, and a blocked one would
    keep the mutex forever.
    """
    lock = tf.raw_ops.MutexLock(mutex=mutex)
    with collect_stateful_operations() as inside:
        yield
    # Only operations with state wait for the lock. Arithmetic may run before it, and an edge for
    # each constant would cost the server time.
    for operation in inside:
        private.add_control_input(operation, lock.op)
    with tf.control_dependencies(inside):
        tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)


class LedgerValues(NamedTuple):
    """A ledger and its window of applied pushes."""

    cells: Cells
    applied: Cells


class ServerLedger:
    """One server's ledger, its window of applied pushes and its mutex.

    Args:
        contents: the contents of the server.
        workers: the most workers that can take part.
    """

    def __init__(self, contents: ResourceHolder, *, workers: int) -> None:
        self.contents, self.layout = contents, LedgerLayout(workers)
        self._mutex = NamedResource(contents.container, MUTEX, contents.device, open_mutex)
        contents.add([self._mutex])
        self._cells = contents.create(
            ServerVariable,
            np.array(self.layout.make_blank_cells(), np.int64),
            shared_name=LEDGER,
            trainable=False,
            name=LEDGER,
        )
        self._applied = contents.create(
            ServerVariable, blank_window(), shared_name=APPLIED, trainable=False, name=APPLIED
        )

    def read_values(self) -> LedgerValues:
        """Return the current values; called while the server is at rest."""
        return LedgerValues(self._cells.numpy(), self._applied.numpy())

    def assign_values(self, cells: Cells, applied: Cells) -> None:
        """Write all values; called while the server is not used."""
        self._cells.assign(cells)
        self._applied.assign(applied)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Run all operations traced in this context under the server's mutex."""
        return under_mutex(self._mutex.handle())

    def open(self) -> GraphLedger:
        """Return the ledger at this point of the trace."""
        return GraphLedger(self.layout, self._cells.read_value())

    def write_changes(self, ledger: Ledger) -> list[tf.Operation]:
        """Write all changes with at most two operations, since each costs the server time."""
        operations = []
        if ledger.writes:
            operations.append(self.write(*collect_writes(ledger)))
        if ledger.additions:
            operations.append(self.add(*collect_additions(ledger)))
        return operations

    def count_exchange(self, sent_bytes: int) -> GraphLedger:
        """Count a request without a payload, and its reply. Returns the ledger.

        Args:
            sent_bytes: the size of the reply's payload.
        """
        ledger = self.open()
        ledger.count(self.layout.EXCHANGES)
        ledger.count_traffic(received_bytes=0, sent_bytes=sent_bytes)
        self.write_changes(ledger)
        return ledger

    def assign(self, ledger: GraphLedger) -> None:
        """Make all changes inside an XLA function, which cannot scatter into a variable.

        The ledger must not have changed since it was opened.
        """
        self._cells.assign(ledger.compute_cells(), read_value=False)

    def one_hot(self, worker: tf.Tensor) -> tf.Tensor:
        """Return a vector with 1 for a worker."""
        return tf.one_hot(worker, self.layout.workers, dtype=tf.int64)

    def by_worker(self, *fields: Callable[[int], int]) -> list[tf.Tensor]:
        """Return the cells of all workers, a vector for each field."""
        workers = range(self.layout.workers)
        cells = self._gather([[field(worker) for worker in workers] for field in fields])
        vectors: list[tf.Tensor] = tf.unstack(cells)
        return vectors

    def read(self, cell: int) -> tf.Tensor:
        """Return the current value of a cell."""
        return self._gather(cell)

    def _gather(self, cells: Any) -> tf.Tensor:
        return tf.raw_ops.ResourceGather(
            resource=self._cells.handle, indices=tf.constant(cells, tf.int64), dtype=tf.int64
        )

    def write_by_worker(self, values: Mapping[Callable[[int], int], tf.Tensor]) -> None:
        """Write the cells of all workers, a vector for each field."""
        workers = np.arange(self.layout.workers)
        cells = np.concatenate([field(0) + workers for field in values])
        self.write(tf.constant(cells, tf.int64), tf.concat(list(values.values()), 0))

    def write(self, cells: tf.Tensor, values: tf.Tensor) -> tf.Operation:
        """Write some cells in one operation."""
        return tf.raw_ops.ResourceScatterUpdate(
            resource=self._cells.handle, indices=cells, updates=values
        )

    def add(self, cells: Any, amounts: tf.Tensor) -> tf.Operation:
        """Add to some cells in one operation."""
        cells = tf.convert_to_tensor(cells, tf.int64)
        return tf.raw_ops.ResourceScatterAdd(
            resource=self._cells.handle, indices=cells, updates=amounts
        )

    def raise_to(self, cell: int, value: tf.Tensor) -> None:
        """Write a cell if the value is larger than the current one."""
        tf.raw_ops.ResourceScatterMax(
            resource=self._cells.handle, indices=tf.constant(cell, tf.int64), updates=value
        )

    def cells(self) -> tf.Tensor:
        """Return a copy of the whole vector."""
        return tf.identity(self._cells.read_value())

    def applied_key(self, cell: tf.Tensor) -> tf.Tensor:
        """Return the largest key applied in a cell of the window."""
        return tf.raw_ops.ResourceGather(
            resource=self._applied.handle, indices=cell, dtype=tf.int64
        )

    def record_applied_key(self, *, cell: tf.Tensor, key: tf.Tensor) -> tf.Operation:
        """Record the largest key that was applied in a cell of the window."""
        return tf.raw_ops.ResourceScatterUpdate(
            resource=self._applied.handle, indices=cell, updates=key
        )

    def allow_repeated_keys(self, *, cells: tf.Tensor, keys: tf.Tensor) -> None:
        """Remove applied keys from their cells, so that pushes with these keys count again.

        Args:
            cells: cells of the window.
            keys: a key for each cell. All smaller keys still count as applied.
        """
        known = self.applied_key(cells)
        self.record_applied_key(cell=cells, key=tf.where(known == keys, keys - 1, known))

    def count_durations(self, ledger: Ledger, kind: int, microseconds: tf.Tensor) -> None:
        """Add durations to their histograms, except those that are -1 (not measured).

        Args:
            ledger: collects the changes; called after all others.
            kind: the kind of the first duration; the others have the kinds after it.
            microseconds: int64 vector of known length.
        """
        bins = _find_bins(tf.constant([bin_bounds()], tf.int64), microseconds)
        kinds = np.arange(kind, kind + microseconds.shape[0], dtype=np.int64)
        cells = tf.constant(self.layout.duration(kinds, 0)) + bins
        for measured, cell in zip(tf.unstack(microseconds >= 0), tf.unstack(cells), strict=True):
            ledger.count_if(measured, cell)

    def count_seconds(self, kind: int, seconds: tf.Tensor, *, counts: Any = True) -> None:
        """Add a duration to its histogram immediately, unless ``counts`` is False."""
        bins = _find_bins(tf.constant(np.array([bin_bounds()]) / 1e6), seconds[None])
        self.add(self.layout.duration(kind, bins), tf.cast([counts], tf.int64))
