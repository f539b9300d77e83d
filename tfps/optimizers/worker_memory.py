"""What a server remembers for each worker: one tensor per worker beside each variable or slab."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.view_variable import segment_of
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.update_targets import UpdateTarget


class WorkerAt(NamedTuple):
    """Whose gradients a server applies, or whom it answers.

    Args:
        worker: int64 scalar, its index.
        version: int64 scalar, the server's, that its gradients were computed from, or that it is
            answered with.
        is_worker: bool scalar; False for the coordinator, for which nothing is stale.
    """

    worker: tf.Tensor
    version: tf.Tensor
    is_worker: tf.Tensor | bool = True


class _Rows:
    """One value per worker and reply, in a variable on the server of what they are values of."""

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
        # A pipelined worker pushes what it computed from the reply before the last.
        self._versions = None
        if replies > 1:
            self._versions = storage.create_bookkeeping(
                tf.fill([workers * replies], tf.constant(-1, tf.int64)),
                device=of.device,
                name=f"{name}/{of.shared_name}/versions_of_workers",
            )

    def read(self, sender: WorkerAt) -> tf.Tensor:
        """What the worker got with that version, or last."""
        row = sender.worker
        if self._versions is not None:
            versions = self._versions_of(sender)
            wanted = tf.where(versions == sender.version, tf.int64.max, versions)
            row = sender.worker * self._replies + tf.argmax(wanted)
        return tf.raw_ops.ResourceGather(
            resource=self._rows.handle, indices=row, dtype=self._of.dtype
        )

    def write(self, sender: WorkerAt, value: tf.Tensor, *, everywhere: bool = False) -> None:
        """Take note of a value.

        Args:
            sender: the worker.
            value: of the shape of what it is a value of.
            everywhere: in place of all that is known of the worker.
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
        """Make it zeros; called on the coordinator, with drained workers."""
        self._rows.assign(tf.zeros(self._rows.shape, self._rows.dtype))

    def _versions_of(self, sender: WorkerAt) -> tf.Tensor:
        assert self._versions is not None
        return tf.reshape(self._versions.read_value(), [-1, self._replies])[sender.worker]


class WorkerMemory:
    """What the server remembers for each worker of all variables of one optimizer.

    Args:
        targets: of the optimizer, on all servers: each variable, or the slab that holds it.
        value_of: what is remembered of an update target: its variable, or one of its slots.
        name: of the optimizer.
        workers: how many there are.
        replies: how many answers of the server a worker may have got since it computed what it
            pushes, and one.
        blank: begin with zeros in the place of the values of now.
        storage: makes variables on servers.
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
        """Remember zeros; called on the coordinator, with drained workers."""
        for rows in self._rows.values():
            rows.clear()

    def hand_out(
        self, names: Collection[str], sender: WorkerAt, *, device: str, is_first: bool
    ) -> None:
        """Trace that a worker is handed values of one server.

        Args:
            names: of the variables and slabs that it is handed.
            sender: the worker, and the version of the values.
            device: the server.
            is_first: it holds nothing older.
        """
        for target in self._units:
            native = self._value_of(target)._value
            if native.device == device and _is_among(target, names):
                self._rows[target.name].write(sender, native.read_value(), everywhere=is_first)

    def read(self, target: UpdateTarget, sender: WorkerAt) -> tf.Tensor:
        """What is remembered of an update target, or of a variable in a slab that is one."""
        if target.name in self._rows:
            return self._rows[target.name].read(sender)
        native = target.variable._value
        row = self._rows[native.slab.shared_name].read(sender)
        return tf.reshape(segment_of(row, native.member), native.shape)

    def write(self, target: UpdateTarget, sender: WorkerAt, value: tf.Tensor) -> None:
        """Remember something else of an update target, or of a variable in a slab that is one."""
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
