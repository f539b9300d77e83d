"""Stores tensors for each worker on the servers, one for each variable or slab."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.view_variable import get_segment
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.update_targets import UpdateTarget


class WorkerVersion(NamedTuple):
    """A worker, and the version of the server's values that the worker was sent.

    Args:
        worker: int64 scalar, the index of the worker.
        version: int64 scalar, the server's version from which its gradients were computed, or that
            it is sent.
        is_worker: bool scalar; False for the coordinator, for which nothing is stale.
    """

    worker: tf.Tensor
    version: tf.Tensor
    is_worker: tf.Tensor | bool = True


class _WorkerValues:
    """The stored values of one variable, a row for each worker and reply, on the same server."""

    def __init__(
        self,
        native: Any,
        *,
        name: str,
        workers: int,
        replies: int,
        starts_at_zero: bool,
        storage: SlabStorage,
    ) -> None:
        self._native, self._replies = native, replies
        shape = [workers * replies, *native.shape]
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
        # A pipelined worker pushes gradients computed from the second to last reply.
        self._versions = None
        if replies > 1:
            self._versions = storage.create_bookkeeping(
                tf.fill([workers * replies], tf.constant(-1, tf.int64)),
                device=native.device,
                name=f"{name}/{native.shared_name}/versions_of_workers",
            )

    def read(self, sender: WorkerVersion) -> tf.Tensor:
        """Return the value that the worker was sent with this version, or the newest one."""
        row = sender.worker
        if self._versions is not None:
            versions = self._read_versions(sender)
            wanted = tf.where(versions == sender.version, tf.int64.max, versions)
            row = sender.worker * self._replies + tf.argmax(wanted)
        return tf.raw_ops.ResourceGather(
            resource=self._rows.handle, indices=row, dtype=self._native.dtype
        )

    def write(self, sender: WorkerVersion, value: tf.Tensor, *, all_replies: bool = False) -> None:
        """Store a value.

        Args:
            sender: the worker.
            value: the value, of the variable's shape.
            all_replies: whether to replace all values of the worker.
        """
        begin = sender.worker * self._replies
        rows = begin + tf.range(self._replies, dtype=tf.int64)
        if not all_replies and self._versions is not None:
            rows = begin + tf.argmin(self._read_versions(sender))[None]
        if self._versions is not None:
            versions = tf.broadcast_to(sender.version, tf.shape(rows))
            _scatter_update(self._versions, rows, versions)
        values = value[None]
        if all_replies and self._replies > 1:
            values = tf.broadcast_to(values, [self._replies, *self._native.shape])
        _scatter_update(self._rows, rows, values)

    def clear(self) -> None:
        """Set all values to zero; called on the coordinator, with drained workers."""
        self._rows.assign(tf.zeros(self._rows.shape, self._rows.dtype))

    def _read_versions(self, sender: WorkerVersion) -> tf.Tensor:
        assert self._versions is not None
        return tf.reshape(self._versions.read_value(), [-1, self._replies])[sender.worker]


class WorkerMemory:
    """The values that servers store for each worker, for all variables of one optimizer.

    Args:
        targets: the update targets of the optimizer on all servers.
        get_value: returns the variable or slot of an update target whose values are stored.
        name: the name of the optimizer.
        workers: the number of workers.
        replies: one more than the number of the server's replies that a worker may have received
            since it computed the gradients that it pushes.
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
        replies: int = 1,
        starts_at_zero: bool = False,
        storage: SlabStorage,
    ) -> None:
        self._targets, self._get_value = targets, get_value
        self._rows = {
            target.name: _WorkerValues(
                get_value(target)._value,
                name=name,
                workers=workers,
                replies=replies,
                starts_at_zero=starts_at_zero,
                storage=storage,
            )
            for target in targets
        }

    def clear(self) -> None:
        """Set all values to zero; called on the coordinator, with drained workers."""
        for rows in self._rows.values():
            rows.clear()

    def store_sent_values(
        self, names: Collection[str], sender: WorkerVersion, *, device: str, is_first: bool
    ) -> None:
        """Trace storing the values that one server sends to a worker.

        Args:
            names: the names of the variables and slabs that are sent.
            sender: the worker and the version of the values.
            device: the server.
            is_first: whether the worker has no older values.
        """
        for target in self._targets:
            native = self._get_value(target)._value
            if native.device == device and _is_included(target, names):
                self._rows[target.name].write(sender, native.read_value(), all_replies=is_first)

    def read(self, target: UpdateTarget, sender: WorkerVersion) -> tf.Tensor:
        """Return the stored value of an update target, or of a variable inside a stored slab."""
        if target.name in self._rows:
            return self._rows[target.name].read(sender)
        native = target.variable._value
        row = self._rows[native.slab.shared_name].read(sender)
        return tf.reshape(get_segment(row, native.member), native.shape)

    def write(self, target: UpdateTarget, sender: WorkerVersion, value: tf.Tensor) -> None:
        """Store a value of an update target, or of a variable inside a stored slab."""
        if target.name in self._rows:
            self._rows[target.name].write(sender, value)
            return
        native = target.variable._value
        rows, begin = self._rows[native.slab.shared_name], native.member.offset_items
        changed = tf.raw_ops.TensorStridedSliceUpdate(
            input=rows.read(sender),
            begin=tf.constant([begin], tf.int64),
            end=tf.constant([begin + native.member.items], tf.int64),
            strides=tf.constant([1], tf.int64),
            value=tf.reshape(value, [native.member.items]),
        )
        rows.write(sender, changed)


def _is_included(target: UpdateTarget, names: Collection[str]) -> bool:
    members = target.variable._value.layout.names if target.is_slab else ()
    return target.name in names or any(member in names for member in members)


def _scatter_update(variable: Any, rows: tf.Tensor, values: tf.Tensor) -> None:
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=rows, updates=values)
