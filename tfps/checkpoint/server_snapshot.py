"""One server's part of a snapshot: taken with drained workers, written during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.variables.named_resource import NamedResource
from tfps.checkpoint.blocks import (
    group_blocks_by_file,
    slice_storage,
    snapshot_handle,
    snapshot_name,
)
from tfps.checkpoint.bundle import write_bundle
from tfps.checkpoint.contents import StoredShard
from tfps.checkpoint.file_channel import PATIENCE_S, FileChannel
from tfps.checkpoint.layout import RowBlock

Call = Callable[..., list[np.ndarray[Any, Any]]]


def copy_one_by_one(handles: Sequence[tuple[Any, tf.Tensor]]) -> tf.Operation:
    """Copy the values of variables one after the other.

    TensorFlow copies a variable whose rows are updated when it is read. At the same time, the
    copies of many tables would take all threads of a server, and it would not reply to probes until
    the end.

    Args:
        handles: the variables to read, and the handles for their values.
    """
    assignment: list[tf.Operation] = []
    for storage, copy in handles:
        with tf.control_dependencies(assignment):
            value = tf.raw_ops.ReadVariableOp(resource=storage.handle, dtype=storage.dtype)
            assignment = [tf.raw_ops.AssignVariableOp(resource=copy, value=value)]
    return tf.group(*assignment)


class ServerSnapshot:
    """Copies the values of a server's shards on the server, and writes the copies to files.

    The server notes its variables' present memory as the snapshot's, which takes no time, except
    for tables of which rows are updated: TensorFlow copies those. Training then changes a copy:
    while a snapshot is kept, a server needs up to as much memory again as its variables and slots
    take.

    Args:
        server: `tfps.runtime.coordinator.server.Server`.
        shards: the shards on this server.
        is_shared: whether the server sees the chief's file system and writes there itself; else its
            values come here block by block.
    """

    def __init__(self, server: Any, shards: list[StoredShard], *, is_shared: bool) -> None:
        self._server, self._is_shared = server, is_shared
        self._channel = FileChannel(server)
        # Of a slab, only the whole vector.
        held = [
            shard.native if shard.native.slab is None else shard.native.slab for shard in shards
        ]
        self._storages = list({storage.shared_name: storage for storage in held}.values())
        self._snapshots = [
            NamedResource(storage.container, snapshot_name(storage), server.device)
            for storage in self._storages
        ]
        self._take = self._channel.make_function(self._trace_take, arguments=1)
        self._free = self._channel.make_function(self._trace_free, arguments=0)
        self._files = [(file, self._make_writer(file)) for file in group_blocks_by_file(shards)]

    def take(self, number: int) -> np.ndarray[Any, Any]:
        """Copy all values under the server's mutex; return the ledger at that moment.

        Args:
            number: larger than any before; an attempt that arrives late notes nothing.
        """
        self._server.contents.add(self._snapshots)
        return self._take(number)[0]

    def write(self, folder: Path) -> dict[str, tuple[RowBlock, ...]]:
        """Write the copied values to files; return the blocks of each file by its name.

        Raises:
            tf.errors.UnavailableError: the server is lost.
        """
        written = {}
        for position, (file, call) in enumerate(self._files):
            name = f"ps-{self._server.index:04d}-{position:05d}"
            if self._is_shared:
                call(str(folder / name), patience_s=PATIENCE_S)
            else:
                keys = [block.key for _, block in file]
                write_bundle(
                    folder / name, dict(zip(keys, call(patience_s=PATIENCE_S), strict=True))
                )
            written[name] = tuple(block for _, block in file)
        return written

    def free(self, *, waits: bool = True) -> None:
        """Free the copied values on the server.

        Args:
            waits: whether to wait for a lost server that may return; else there is one attempt.

        Raises:
            tf.errors.UnavailableError: the server does not reply.
        """
        self._free() if waits else self._free(patience_s=0.0)
        self._server.contents.discard(self._snapshots)

    def close(self) -> None:
        """Close the channel; a snapshot that is kept stays until the server ends."""
        self._channel.close()

    def _make_writer(self, file: list[tuple[StoredShard, RowBlock]]) -> Call:
        def values() -> list[tf.Tensor]:
            kept: dict[str, tf.Tensor] = {}
            return [self._block(shard, block, kept) for shard, block in file]

        def write(prefix: tf.Tensor) -> list[tf.Tensor]:
            writing = tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=[block.key for _, block in file],
                shape_and_slices=[""] * len(file),
                tensors=values(),
            )
            with tf.control_dependencies([writing]):
                return [tf.constant(len(file), tf.int64)]

        if self._is_shared:
            return self._channel.make_function(write, arguments=[tf.TensorSpec([], tf.string)])
        return self._channel.make_function(values, arguments=0)

    def _block(self, shard: StoredShard, block: RowBlock, kept: dict[str, tf.Tensor]) -> tf.Tensor:
        storage = shard.native if shard.native.slab is None else shard.native.slab
        name = storage.shared_name
        if name not in kept:
            kept[name] = tf.raw_ops.ReadVariableOp(
                resource=snapshot_handle(storage), dtype=storage.dtype
            )
            kept[name].set_shape(storage.shape)
        return slice_storage(kept[name], shard, block)

    def _trace_take(self, number: tf.Tensor) -> list[tf.Tensor]:
        ledger = self._server.ledger
        handles = [(storage, snapshot_handle(storage)) for storage in self._storages]

        def note() -> tf.Tensor:
            with tf.control_dependencies([copy_one_by_one(handles)]):
                return tf.constant(True)

        with ledger.locked():
            cells = ledger.cells()
            tf.cond(number > cells[ledger.layout.FENCE], note, lambda: tf.constant(False))
            ledger.raise_to(ledger.layout.FENCE, number)
        return [cells]

    def _trace_free(self) -> list[tf.Tensor]:
        freed = [
            tf.raw_ops.DestroyResourceOp(resource=snapshot.handle(), ignore_lookup_error=True)
            for snapshot in self._snapshots
        ]
        with tf.control_dependencies(freed):
            return [tf.constant(len(freed), tf.int64)]
