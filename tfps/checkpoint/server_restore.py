"""The restore of one server's shards from a checkpoint, with only the rows that it needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.row_blocks import write_rows
from tfps.checkpoint.bundle import Bundle
from tfps.checkpoint.contents import StoredShard
from tfps.checkpoint.file_channel import PATIENCE_S, FileChannel
from tfps.checkpoint.file_error import file_error, short_reason
from tfps.checkpoint.layout import RowBlock, RowMapping, find_moves
from tfps.checkpoint.manifest import Manifest, SavedTensor
from tfps.consistency.chief_requests import REPLACED
from tfps.errors import CheckpointDamaged
from tfps.partitioners.row_rule import RowRule

# Files of up to 64 MiB: a server reads them at the same time, and needs memory for all of them.
MAX_OPEN_FILES = 4
Source = tuple[str, str]  # a file, and the key of a block in it


@dataclass(frozen=True)
class ShardFill:
    """Rows of a file that fill a part of a shard.

    Args:
        shard: the shard to fill.
        move: the rows to move.
        file: the file of the block.
    """

    shard: StoredShard
    move: RowMapping
    file: str


def shard_moves(
    manifest: Manifest, shards: Iterable[StoredShard], rules: Mapping[str, RowRule]
) -> Iterator[ShardFill]:
    """Yield all moves that fill some shards.

    Args:
        manifest: the manifest of the checkpoint.
        shards: the shards to fill.
        rules: the rules of the wanted tensors, by name.
    """
    blocks: dict[str, dict[RowBlock, str]] = {}
    for file, stored in manifest.files.items():
        for block in stored:
            blocks.setdefault(block.tensor, {})[block] = file
    for shard in shards:
        files = blocks.get(shard.tensor, {})
        for move in find_moves(
            list(files),
            stored=manifest.tensors[shard.tensor].rule,
            wanted=rules[shard.tensor],
            shard=shard.index,
        ):
            yield ShardFill(shard, move, files[move.block])


class ServerRestore:
    """Restores one server, which reads the files if it sees the folder; else the chief sends them.

    Args:
        channel: the channel to the server.
        server: `tfps.runtime.coordinator.server.Server`; it accepts this only from its own chief.
        is_shared: whether it sees the folder.
    """

    def __init__(self, channel: FileChannel, server: Any, *, is_shared: bool) -> None:
        self._channel, self._server, self._is_shared = channel, server, is_shared
        self._ledger = server.ledger
        # Larger than any before: an attempt that arrives late, when training continues, must not
        # write any more.
        self._number = time.time_ns()
        self._fence = channel.make_function(self._trace_fence, arguments=2)

    def begin(self) -> None:
        """Make the server refuse late requests of earlier restores.

        Raises:
            ChiefReplaced: another chief has the job; nothing was changed.
        """
        self._server.check_chief_reply(self._fence(self._number, self._server.term))

    def end(self) -> None:
        """Make the server refuse late requests of this restore."""
        self._server.check_chief_reply(self._fence(self._number + 1, self._server.term))

    def write_cells(self, cells: Mapping[int, int]) -> None:
        """Write cells of the server's ledger."""

        def trace(number: tf.Tensor, cells: tf.Tensor, values: tf.Tensor) -> list[tf.Tensor]:
            def write() -> tf.Tensor:
                self._ledger.write(cells, values)
                return tf.constant(True)

            return [self._if_current(number, write)]

        vector = tf.TensorSpec([len(cells)], tf.int64)
        arguments = [tf.TensorSpec([], tf.int64), vector, vector]
        arrays = [np.array(list(part), np.int64) for part in (cells.keys(), cells.values())]
        self._channel.make_function(trace, arguments=arguments)(self._number, *arrays)

    def _trace_fence(self, number: tf.Tensor, term: tf.Tensor) -> list[tf.Tensor]:
        ledger = self._ledger
        with ledger.locked():
            result = tf.where(ledger.cells()[ledger.layout.TERM] == term, number, REPLACED)
            ledger.raise_to(ledger.layout.FENCE, result)
        return [result]

    def _if_current(self, number: tf.Tensor, write: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Trace writes under the server's mutex, unless a newer restore or snapshot has begun."""
        ledger = self._ledger
        with ledger.locked():
            cells = ledger.cells()
            is_current = tf.equal(cells[ledger.layout.FENCE], number)
            is_current &= tf.equal(cells[ledger.layout.TERM], self._server.term)
            return tf.cond(is_current, write, lambda: tf.constant(False))

    def fill(self, folder: Path, manifest: Manifest, parts: Iterable[ShardFill]) -> None:
        """Fill shards of the server.

        Args:
            folder: the folder of the checkpoint.
            manifest: the manifest of the checkpoint.
            parts: all moves.

        Raises:
            CheckpointDamaged: the files have changed since they were written.
            tf.errors.UnavailableError: the server is lost.
        """
        by_file: dict[str, list[ShardFill]] = {}
        for shard_move in parts:
            by_file.setdefault(shard_move.file, []).append(shard_move)
        files = list(by_file)
        # A server reads several files at once; a message has one.
        step = MAX_OPEN_FILES if self._is_shared else 1
        for begin in range(0, len(files), step):
            filled = [part for file in files[begin : begin + step] for part in by_file[file]]
            try:
                self._fill(folder, filled, _block_specs(manifest.tensors, filled))
            except tf.errors.OpError as error:
                damaged = file_error(error, folder)
                if damaged is None:
                    raise
                raise CheckpointDamaged(f"{folder}: {short_reason(damaged)}") from error

    def _fill(
        self, folder: Path, filled: list[ShardFill], specs: Mapping[Source, tf.TensorSpec]
    ) -> None:
        if self._is_shared:
            files = list(dict.fromkeys(file for file, _ in specs))
            arguments = [tf.TensorSpec([], tf.string)] * len(files)
            given: list[Any] = [str(folder / file) for file in files]
        else:
            arguments = list(specs.values())
            given = [Bundle(folder / file).array(key) for file, key in specs]
        indices = [rows for shard_move in filled for rows in _irregular_rows(shard_move.move)]
        call = self._channel.make_function(
            self._trace_fill(filled, specs),
            arguments=[
                tf.TensorSpec([], tf.int64),
                *arguments,
                *(tf.TensorSpec([len(rows)], tf.int64) for rows in indices),
            ],
        )
        call(self._number, *given, *indices, patience_s=PATIENCE_S)

    def _trace_fill(
        self, filled: list[ShardFill], specs: Mapping[Source, tf.TensorSpec]
    ) -> Callable[..., list[tf.Tensor]]:
        def trace(number: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
            rest = iter(arguments)
            values = _read(rest, specs) if self._is_shared else {key: next(rest) for key in specs}
            moved = []
            for shard_move in filled:
                move = shard_move.move
                key = shard_move.file, move.block.key
                block = tf.ensure_shape(values[key], specs[key].shape)
                source, target = (
                    rows if isinstance(rows, range) else next(rest)
                    for rows in (move.source, move.target)
                )
                if not move.takes_all:
                    block = _take_rows(block, source)
                moved.append((shard_move.shard, target, block))

            def write() -> tf.Tensor:
                for shard, target, block in moved:
                    write_rows(shard.native, target, block)
                return tf.constant(True)

            return [self._if_current(number, write)]

        return trace


def _irregular_rows(move: RowMapping) -> list[np.ndarray[Any, Any]]:
    return [
        rows.astype(np.int64) for rows in (move.source, move.target) if not isinstance(rows, range)
    ]


def _read(
    prefixes: Iterator[tf.Tensor], specs: Mapping[Source, tf.TensorSpec]
) -> dict[Source, tf.Tensor]:
    """Trace how a server reads blocks from files."""
    by_file: dict[str, list[str]] = {}
    for file, key in specs:
        by_file.setdefault(file, []).append(key)
    values = {}
    for file, keys in by_file.items():
        read = tf.raw_ops.RestoreV2(
            prefix=next(prefixes),
            tensor_names=keys,
            shape_and_slices=[""] * len(keys),
            dtypes=[specs[file, key].dtype for key in keys],
        )
        private.run_independently(read[0].op)
        values.update({(file, key): value for key, value in zip(keys, read, strict=True)})
    return values


def _block_specs(
    stored: Mapping[str, SavedTensor], filled: list[ShardFill]
) -> dict[Source, tf.TensorSpec]:
    """Return the shape and dtype of each block."""
    specs = {}
    for shard_move in filled:
        block = shard_move.move.block
        tensor = stored[block.tensor]
        shape = [block.rows, *tensor.shape[1:]] if tensor.shape else []
        specs[shard_move.file, block.key] = tf.TensorSpec(shape, tf.as_dtype(tensor.dtype))
    return specs


def _take_rows(block: tf.Tensor, rows: tf.Tensor | range) -> tf.Tensor:
    if isinstance(rows, range):
        return block[rows.start : rows.stop : rows.step]
    return tf.gather(block, rows)
