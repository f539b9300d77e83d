"""Stores tensors for each worker on the servers, one for each variable or slab."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.view_variable import get_segment
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.update_targets import UpdateTarget


class Sender(NamedTuple):
    """The sender of a push.

    Args:
        worker: int64 scalar, the index of the worker.
        is_worker: bool scalar; False for the coordinator, for which nothing is stale.
    """

    worker: tf.Tensor
    is_worker: tf.Tensor | bool = True


class _WorkerValues:
    """The stored values of one variable, a row for each worker, on the same server."""

    def __init__(
        self, native: Any, *, name: str, workers: int, starts_at_zero: bool, storage: SlabStorage
    ) -> None:
        self._dtype = native.dtype
        shape = [workers, *native.shape]
        self._rows = storage.create_bookkeeping(
            lambda: (
                tf.zeros(shape, native.dtype)
                if starts_at_zero
                else tf.broadcast_to(native.read_value(), shape)
            ),
            device=native.device,
            dtype=native.dtype,
            name=f"{name}/{native.shared_name}/of_workers",
        )

    def read(self, worker: tf.Tensor) -> tf.Tensor:
        """Return the value of a worker."""
        return tf.raw_ops.ResourceGather(
            resource=self._rows.handle, indices=worker, dtype=self._dtype
        )

    def write(self, worker: tf.Tensor, value: tf.Tensor) -> None:
        """Store a value of the variable's shape for a worker."""
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._rows.handle, indices=worker[None], updates=value[None]
        )

    def clear(self) -> None:
        """Set all values to zero; called on the coordinator, with drained workers."""
        self._rows.assign(tf.zeros(self._rows.shape, self._rows.dtype))


class WorkerMemory:
    """The values that servers store for each worker, for all variables of one optimizer.

    Args:
        targets: the update targets of the optimizer on all servers.
        get_value: returns the variable or slot of an update target whose values are stored.
        name: the name of the optimizer.
        workers: the number of workers.
        starts_at_zero: whether to start with zeros instead of the current values.
        storage: creates variables on servers.
    """

    def __init__(
        self,
        targets: Sequence[UpdateTarget],
        *,
        get_value: Callable[[UpdateTarget], Any],
        name: str,
        workers: int,
        starts_at_zero: bool = False,
        storage: SlabStorage,
    ) -> None:
        self._targets, self._get_value = targets, get_value
        self._rows = {
            target.name: _WorkerValues(
                get_value(target)._value,
                name=name,
                workers=workers,
                starts_at_zero=starts_at_zero,
                storage=storage,
            )
            for target in targets
        }

    def clear(self) -> None:
        """Set all values to zero; called on the coordinator, with drained workers."""
        for rows in self._rows.values():
            rows.clear()

    def store_sent_values(self, names: Collection[str], worker: tf.Tensor, *, device: str) -> None:
        """Trace storing the values that one server sends to a worker.

        Args:
            names: the names of the variables and slabs that are sent.
            worker: the worker's index.
            device: the server.
        """
        for target in self._targets:
            native = self._get_value(target)._value
            if native.device == device and _is_included(target, names):
                self._rows[target.name].write(worker, native.read_value())

    def read(self, target: UpdateTarget, worker: tf.Tensor) -> tf.Tensor:
        """Return the stored value of an update target, or of a variable inside a stored slab."""
        if target.name in self._rows:
            return self._rows[target.name].read(worker)
        native = target.variable._value
        row = self._rows[native.slab.shared_name].read(worker)
        return tf.reshape(get_segment(row, native.member), native.shape)

    def write(self, target: UpdateTarget, worker: tf.Tensor, value: tf.Tensor) -> None:
        """Store a value of an update target, or of a variable inside a stored slab."""
        if target.name in self._rows:
            self._rows[target.name].write(worker, value)
            return
        native = target.variable._value
        rows, begin = self._rows[native.slab.shared_name], native.member.offset_items
        changed = tf.raw_ops.TensorStridedSliceUpdate(
            input=rows.read(worker),
            begin=tf.constant([begin], tf.int64),
            end=tf.constant([begin + native.member.items], tf.int64),
            strides=tf.constant([1], tf.int64),
            value=tf.reshape(value, [native.member.items]),
        )
        rows.write(worker, changed)


def _is_included(target: UpdateTarget, names: Collection[str]) -> bool:
    members = target.variable._value.layout.names if target.is_slab else ()
    return target.name in names or any(member in names for member in members)
