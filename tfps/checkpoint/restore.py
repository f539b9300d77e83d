"""Fill a model from a checkpoint, on the servers and on the chief."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.checkpoint.bundle import Bundle
from tfps.checkpoint.contents import Contents
from tfps.checkpoint.counters import entries_of
from tfps.checkpoint.line import Line
from tfps.checkpoint.manifest import CHIEF, Counters, Manifest
from tfps.checkpoint.parallel import in_parallel
from tfps.checkpoint.server_restore import Filling, ServerRestore, fillings


def fill(
    contents: Contents,
    manifest: Manifest,
    folder: Path,
    *,
    lines: Sequence[Line],
    shared: Sequence[bool],
) -> None:
    """Fill all pieces, at rest.

    Args:
        contents: the model's; the checkpoint fits it.
        manifest: of the checkpoint.
        folder: of the checkpoint.
        lines: to the servers.
        shared: for each server whether it sees the folder.
    """
    rules = {name: tensor.rule for name, tensor in contents.tensors.items()}
    calls = []
    for index, (line, is_shared) in enumerate(zip(lines, shared, strict=True)):
        parts = list(fillings(manifest, contents.on(index), rules))
        server = ServerRestore(line, is_shared=is_shared)
        calls.append(partial(server.fill, folder, manifest, parts))
    in_parallel(calls)
    by_piece: dict[int, list[Filling]] = {}
    for filling in fillings(manifest, contents.on(CHIEF), rules):
        by_piece.setdefault(id(filling.piece), []).append(filling)
    for parts in by_piece.values():
        _fill_on_chief(folder, parts)


def _fill_on_chief(folder: Path, parts: Sequence[Filling]) -> None:
    """A piece of the chief's, which is assigned as a whole."""
    native = parts[0].piece.native
    value = np.zeros(native.shape, native.dtype.as_numpy_dtype)
    for filling in parts:
        move = filling.move
        block = Bundle(folder / filling.file).array(move.block.key)
        if value.ndim:
            value[_index(move.target)] = block[_index(move.source)]
        else:
            value = block
    native.assign(value)


def _index(rows: Any) -> Any:
    return slice(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows


def write_counters(counters: Counters, *, servers: Sequence[Any], lines: Sequence[Line]) -> None:
    """Let the counts of all servers go on from those of a checkpoint, at rest.

    Args:
        counters: of the checkpoint.
        servers: `tfps.runtime.server.Server`s.
        lines: to them.
    """
    entries = entries_of(servers[0].books, counters, servers=len(servers))
    calls = []
    for server, line, cells in zip(servers, lines, entries, strict=True):
        vector = tf.TensorSpec([None], tf.int64)
        write = line.function(partial(_write, server.ledger), arguments=[vector, vector])
        pairs = [np.array(values, np.int64) for values in (list(cells), list(cells.values()))]
        calls.append(partial(write, *pairs))
    in_parallel(calls)


def _write(ledger: Any, cells: tf.Tensor, values: tf.Tensor) -> list[tf.Tensor]:
    with ledger.locked():
        ledger.write(cells, values)
    return [tf.size(cells, out_type=tf.int64)]
