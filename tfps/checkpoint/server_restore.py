"""Fills one server's pieces from a checkpoint, with the rows that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.checkpoint.blocks import write_rows
from tfps.checkpoint.bundle import Bundle
from tfps.checkpoint.contents import Piece
from tfps.checkpoint.layout import Block, Move, moves
from tfps.checkpoint.line import PATIENCE_S, Line
from tfps.checkpoint.manifest import Manifest, Tensor
from tfps.partitioners.row_rule import RowRule


@dataclass(frozen=True)
class Filling:
    """A move into a piece.

    Args:
        piece: what is filled.
        move: from where.
        file: in which the block lies.
    """

    piece: Piece
    move: Move
    file: str


def fillings(
    manifest: Manifest, pieces: Iterable[Piece], rules: Mapping[str, RowRule]
) -> Iterator[Filling]:
    """All moves that fill some pieces.

    Args:
        manifest: of the checkpoint.
        pieces: what is wanted.
        rules: by which the wanted tensors lie.
    """
    blocks: dict[str, dict[Block, str]] = {}
    for file, stored in manifest.files.items():
        for block in stored:
            blocks.setdefault(block.tensor, {})[block] = file
    for piece in pieces:
        found = blocks.get(piece.tensor, {})
        for move in moves(
            list(found),
            stored=manifest.tensors[piece.tensor].rule,
            wanted=rules[piece.tensor],
            shard=piece.shard,
        ):
            yield Filling(piece, move, found[move.block])


class ServerRestore:
    """Reads on the server where it sees the folder; else the chief reads and sends block by block.

    Args:
        line: to the server.
        is_shared: whether it sees the folder.
    """

    def __init__(self, line: Line, *, is_shared: bool) -> None:
        self._line, self._is_shared = line, is_shared

    def fill(self, folder: Path, manifest: Manifest, parts: Iterable[Filling]) -> None:
        """Fill pieces of the server.

        Args:
            folder: of the checkpoint.
            manifest: of the checkpoint.
            parts: all that is to be read.
        """
        by_file: dict[str, list[Filling]] = {}
        for filling in parts:
            by_file.setdefault(filling.file, []).append(filling)
        for file, filled in by_file.items():
            keys = list(dict.fromkeys(filling.move.block.key for filling in filled))
            specs = _specs(manifest.tensors, filled)
            given: list[Any]
            if self._is_shared:
                arguments = [tf.TensorSpec([], tf.string)]
                given = [str(folder / file)]
            else:
                bundle = Bundle(folder / file)
                arguments = [specs[key] for key in keys]
                given = [bundle.array(key) for key in keys]
            indices = [rows for filling in filled for rows in _irregular(filling.move)]
            arguments += [tf.TensorSpec([len(rows)], tf.int64) for rows in indices]
            trace = self._trace(filled, keys, specs)
            self._line.function(trace, arguments=arguments)(*given, *indices, patience_s=PATIENCE_S)

    def _trace(
        self, filled: list[Filling], keys: list[str], specs: Mapping[str, tf.TensorSpec]
    ) -> Callable[..., list[tf.Tensor]]:
        def trace(*arguments: tf.Tensor) -> list[tf.Tensor]:
            if self._is_shared:
                values = tf.raw_ops.RestoreV2(
                    prefix=arguments[0],
                    tensor_names=keys,
                    shape_and_slices=[""] * len(keys),
                    dtypes=[specs[key].dtype for key in keys],
                )
                indices = iter(arguments[1:])
            else:
                values, indices = arguments[: len(keys)], iter(arguments[len(keys) :])
            by_key = dict(zip(keys, values, strict=True))
            done = []
            for filling in filled:
                move = filling.move
                block = tf.ensure_shape(by_key[move.block.key], specs[move.block.key].shape)
                source, target = (
                    rows if isinstance(rows, range) else next(indices)
                    for rows in (move.source, move.target)
                )
                if not move.takes_all:
                    block = _taken(block, source)
                done.append(write_rows(filling.piece, target, block))
            with tf.control_dependencies(done):
                return [tf.constant(len(done), tf.int64)]

        return trace


def _irregular(move: Move) -> list[np.ndarray[Any, Any]]:
    return [
        rows.astype(np.int64) for rows in (move.source, move.target) if not isinstance(rows, range)
    ]


def _specs(stored: Mapping[str, Tensor], filled: list[Filling]) -> dict[str, tf.TensorSpec]:
    """Shape and dtype of each block."""
    specs = {}
    for filling in filled:
        block = filling.move.block
        tensor = stored[block.tensor]
        shape = [block.rows, *tensor.shape[1:]] if tensor.shape else []
        specs[block.key] = tf.TensorSpec(shape, tf.as_dtype(tensor.dtype))
    return specs


def _taken(block: tf.Tensor, rows: tf.Tensor | range) -> tf.Tensor:
    if isinstance(rows, range):
        return block[rows.start : rows.stop : rows.step]
    return tf.gather(block, rows)
