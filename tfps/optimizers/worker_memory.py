"""Stores tensors for each worker on the servers, one for each variable or slab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.view_variable import get_segment
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.update_targets import UpdateTarget


class _WorkerValues:
    """The stored values of one variable, a row for each worker, on the same server."""

    def __init__(self, native: Any, *, name: str, workers: int, storage: SlabStorage) -> None:
        self._dtype = native.dtype
        self._rows = storage.create_bookkeeping(
            lambda: tf.zeros([workers, *native.shape], native.dtype),
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
    """The values of one slot that servers store for each worker, zeros at first.

    Args:
        targets: the update targets of the optimizer on all servers.
        slot: the attribute of the slot.
        name: the name of the optimizer.
        workers: the number of workers.
        storage: creates variables on servers.
    """

    def __init__(
        self,
        targets: Sequence[UpdateTarget],
        *,
        slot: str,
        name: str,
        workers: int,
        storage: SlabStorage,
    ) -> None:
        self._rows = {
            target.name: _WorkerValues(
                target.slots[slot]._value, name=name, workers=workers, storage=storage
            )
            for target in targets
        }

    def clear(self) -> None:
        """Set all values to zero; called on the coordinator, with drained workers."""
        for rows in self._rows.values():
            rows.clear()

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
