"""The restore of a model from a checkpoint, on the servers and on the chief."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tfps.checkpoint.bundle import Bundle
from tfps.checkpoint.contents import Contents
from tfps.checkpoint.line import Line
from tfps.checkpoint.manifest import CHIEF, Manifest
from tfps.checkpoint.parallel import in_parallel
from tfps.checkpoint.server_restore import Filling, ServerRestore, fillings


def fill(
    contents: Contents,
    manifest: Manifest,
    folder: Path,
    *,
    servers: Sequence[ServerRestore] = (),
) -> None:
    """Fill all shards while the workers are drained.

    Args:
        contents: the contents of the model; the checkpoint fits them.
        manifest: the manifest of the checkpoint.
        folder: the folder of the checkpoint.
        servers: in their order; none without a strategy.
    """
    rules = {name: tensor.rule for name, tensor in contents.tensors.items()}
    calls = []
    for index, server in enumerate(servers):
        parts = list(fillings(manifest, contents.on(index), rules))
        calls.append(partial(server.fill, folder, manifest, parts))
    in_parallel(calls)
    by_shard: dict[int, list[Filling]] = {}
    for filling in fillings(manifest, contents.on(CHIEF), rules):
        by_shard.setdefault(id(filling.shard), []).append(filling)
    for parts in by_shard.values():
        _fill_on_chief(folder, parts)


def _fill_on_chief(folder: Path, parts: Sequence[Filling]) -> None:
    """Fill a shard on the chief, which is assigned as a whole."""
    native = parts[0].shard.native
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


@contextlib.contextmanager
def restoring(
    servers: Sequence[Any], *, lines: Sequence[Line], shared: Sequence[bool]
) -> Iterator[list[ServerRestore]]:
    """Yield the objects that fill the servers; later writes of these are refused.

    Args:
        servers: `tfps.runtime.coordinator.server.Server`s.
        lines: the lines to them.
        shared: for each server whether it sees the folder.
    """
    parts = [
        ServerRestore(line, server, is_shared=is_shared)
        for server, line, is_shared in zip(servers, lines, shared, strict=True)
    ]
    in_parallel([part.begin for part in parts])
    yield parts
    in_parallel([part.end for part in parts])
