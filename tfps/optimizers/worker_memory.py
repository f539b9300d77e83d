"""The memory of a server for its workers: a tensor per worker for each variable or slab."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.view_variable import segment_of
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.update_targets import UpdateTarget


class WorkerAt(NamedTuple):
    """A worker and a version of the server's values that it was sent or uses.

    Args:
        worker: int64 scalar, the index of the worker.
        version: int64 scalar, the server's version from which its gradients were computed, or that
            it is sent.
        is_worker: bool scalar; False for the coordinator, for which nothing is stale.
    """

    worker: tf.Tensor
    version: tf.Tensor
    is_worker: tf.Tensor | bool = True


class _Rows:
    """One value of a variable per worker and reply, stored on the server of the variable."""

    def __init__(
        self, of: Any, *, name: str, workers: int, replies: int, blank: bool, storage: SlabStorage
    ) -> None:
        self._of, self._replies = of, replies
        shape = [workers * replies, *of.shape]
        self._rows = storage.create_bookkeeping(
            lambda: tf.zeros(shape, of.dtype) if blank else tf.broadcast_to(of.read_value(), shape),
            device=of.device,
            dtype=of.dtype,
            name=f"{name}/{of.shared_name}/of_workers",
        )
        # A pipelined worker pushes gradients computed from the second to last reply.
        self._versions = None
        if replies > 1:
            self._versions = storage.create_bookkeeping(
                tf.fill([workers * replies], tf.constant(-1, tf.int64)),
                device=of.device,
                name=f"{name}/{of.shared_name}/versions_of_workers",
            )

    def read(self, sender: WorkerAt) -> tf.Tensor:
        """Return the value that the worker was sent with this version, or the newest one."""
        row = sender.worker
        if self._versions is not None:
            versions = self._versions_of(sender)
            wanted = tf.where(versions == sender.version, tf.int64.max, versions)
            row = sender.worker * self._replies + tf.argmax(wanted)
        return tf.raw_ops.ResourceGather(
            resource=self._rows.handle, indices=row, dtype=self._of.dtype
        )

    def write(self, sender: WorkerAt, value: tf.Tensor, *, everywhere: bool = False) -> None:
        """Store a value.

        Args:
            sender: the worker.
            value: the value, of the variable's shape.
            everywhere: whether to replace all values of the worker.
        """
        begin = sender.worker * self._replies
        rows = begin + tf.range(self._replies, dtype=tf.int64)
        if not everywhere and self._versions is not None:
            rows = begin + tf.argmin(self._versions_of(sender))[None]
        if self._versions is not None:
            versions = tf.broadcast_to(sender.version, tf.shape(rows))
            _scatter(self._versions, rows, versions)
        count = self._replies if everywhere else 1
        _scatter(self._rows, rows, tf.broadcast_to(value, [count, *self._of.shape]))

    def clear(self) -> None:
        """Set all values to zero; called on the coordinator, with drained workers."""
        self._rows.assign(tf.zeros(self._rows.shape, self._rows.dtype))

    def _versions_of(self, sender: WorkerAt) -> tf.Tensor:
        assert self._versions is not None
        return tf.reshape(self._versions.read_value(), [-1, self._replies])[sender.worker]


class WorkerMemory:
    """The values that servers store for each worker, for all variables of one optimizer.

    Args:
        targets: the update targets of the optimizer on all servers.
        value_of: returns the variable or slot of an update target whose values are stored.
        name: the name of the optimizer.
        workers: the number of workers.
        replies: one more than the number of the server's replies that a worker may have received
            since it computed the gradients that it pushes.
        blank: whether to start with zeros instead of the current values.
        storage: creates variables on servers.
    """

    def __init__(
        self,
        targets: Sequence[UpdateTarget],
        *,
        value_of: Callable[[UpdateTarget], Any],
        name: str,
        workers: int,
        replies: int = 1,
        blank: bool = False,
        storage: SlabStorage,
    ) -> None:
        self._units, self._value_of = targets, value_of
        self._rows = {
            target.name: _Rows(
                value_of(target)._value,
                name=name,
                workers=workers,
                replies=replies,
                blank=blank,
                storage=storage,
            )
            for target in targets
        }

    def clear(self) -> None:
        """Set all values to zero; called on the coordinator, with drained workers."""
        for rows in self._rows.values():
            rows.clear()

    def hand_out(
        self, names: Collection[str], sender: WorkerAt, *, device: str, is_first: bool
    ) -> None:
        """Trace storing the values that one server sends to a worker.

        Args:
            names: the names of the variables and slabs that are sent.
            sender: the worker and the version of the values.
            device: the server.
            is_first: whether the worker has no older values.
        """
        for target in self._units:
            native = self._value_of(target)._value
            if native.device == device and _is_among(target, names):
                self._rows[target.name].write(sender, native.read_value(), everywhere=is_first)

    def read(self, target: UpdateTarget, sender: WorkerAt) -> tf.Tensor:
        """Return the stored value of an update target, or of a variable in a slab that is one."""
        if target.name in self._rows:
            return self._rows[target.name].read(sender)
        native = target.variable._value
        row = self._rows[native.slab.shared_name].read(sender)
        return tf.reshape(segment_of(row, native.member), native.shape)

    def write(self, target: UpdateTarget, sender: WorkerAt, value: tf.Tensor) -> None:
        """Store a value of an update target, or of a variable in a slab that is one."""
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


def _is_among(target: UpdateTarget, names: Collection[str]) -> bool:
    members = target.variable._value.layout.names if target.is_slab else ()
    return target.name in names or any(member in names for member in members)


def _scatter(variable: Any, rows: tf.Tensor, values: tf.Tensor) -> None:
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=rows, updates=values)
