"""Restore a model from a checkpoint, on the servers and on the chief."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tfps.checkpoint.bundle import Bundle
from tfps.checkpoint.contents import Contents, find_contents
from tfps.checkpoint.counters import to_cells
from tfps.checkpoint.file_channel import FileChannel
from tfps.checkpoint.manifest import CHIEF, Manifest
from tfps.checkpoint.mismatch import check_fit
from tfps.checkpoint.names import named_variables, optimizer_of
from tfps.checkpoint.parallel import run_in_parallel
from tfps.checkpoint.server_restore import ServerRestore, ShardFill, shard_moves
from tfps.checkpoint.servers import build_optimizer, open_channels, server_devices_of, strategy_of
from tfps.checkpoint.shared_folder import SharedFolder


def fill(
    contents: Contents, manifest: Manifest, folder: Path, *, servers: Sequence[ServerRestore] = ()
) -> None:
    """Fill all shards from a checkpoint while the workers are drained.

    Args:
        contents: the contents of the model; the checkpoint fits them.
        manifest: the manifest of the checkpoint.
        folder: the folder of the checkpoint.
        servers: in their order; none without a strategy.
    """
    rules = {name: tensor.rule for name, tensor in contents.tensors.items()}
    calls = []
    for index, server in enumerate(servers):
        parts = list(shard_moves(manifest, contents.get_shards_on(index), rules))
        calls.append(partial(server.fill, folder, manifest, parts))
    run_in_parallel(calls)
    by_shard: dict[int, list[ShardFill]] = {}
    for shard_move in shard_moves(manifest, contents.get_shards_on(CHIEF), rules):
        by_shard.setdefault(id(shard_move.shard), []).append(shard_move)
    for parts in by_shard.values():
        _fill_on_chief(folder, parts)


def _fill_on_chief(folder: Path, parts: Sequence[ShardFill]) -> None:
    """Fill a shard on the chief, which is assigned as a whole."""
    native = parts[0].shard.native
    value = np.zeros(native.shape, native.dtype.as_numpy_dtype)
    for shard_move in parts:
        move = shard_move.move
        block = Bundle(folder / shard_move.file).array(move.block.key)
        if value.ndim:
            value[_to_index(move.target)] = block[_to_index(move.source)]
        else:
            value = block
    native.assign(value)


def _to_index(rows: Any) -> Any:
    return slice(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows


@contextlib.contextmanager
def open_restores(
    servers: Sequence[Any], *, channels: Sequence[FileChannel], shared: Sequence[bool]
) -> Iterator[list[ServerRestore]]:
    """Yield an object for each server that fills it; requests that arrive later are refused.

    Args:
        servers: `tfps.runtime.coordinator.server.Server`s.
        channels: the channels to them.
        shared: for each server whether it sees the folder.
    """
    parts = [
        ServerRestore(channel, server, is_shared=is_shared)
        for server, channel, is_shared in zip(servers, channels, shared, strict=True)
    ]
    run_in_parallel([part.begin for part in parts])
    yield parts
    run_in_parallel([part.end for part in parts])


def restore_model(
    model: Any, manifest: Manifest, *, shared: SharedFolder, weights_only: bool
) -> None:
    """Restore a checkpoint into a model, while the workers of its strategy are drained.

    Args:
        model: a Keras model; its optimizer is built if it was not.
        manifest: the manifest of the checkpoint.
        shared: the folder of the checkpoint.
        weights_only: whether the optimizer and the counters stay as they are.
    """
    checkpoint = shared.folder.checkpoint_path(manifest.number)
    build_optimizer(model)
    optimizer = not weights_only and optimizer_of(model) is not None
    strategy = strategy_of(model)
    variables = named_variables(model, optimizer=optimizer)
    contents = find_contents(variables, servers=server_devices_of(strategy))
    stored = {
        name: tensor
        for name, tensor in manifest.tensors.items()
        if optimizer or name.startswith("model/")
    }
    check_fit(stored, contents.tensors, source=str(checkpoint))
    if strategy is None:
        fill(contents, manifest, checkpoint)
        return
    strategy.run_state.drain_all()
    runtime = strategy.runtime
    runtime.membership.evict_all()  # a worker that comes back reads everything anew
    with open_channels(runtime.servers) as channels:
        seen = shared.is_seen_by(channels, checkpoint=checkpoint)
        with open_restores(runtime.servers, channels=channels, shared=seen) as parts:
            fill(contents, manifest, checkpoint, servers=parts)
            if optimizer and manifest.counters is not None:
                layout = runtime.ticket_server.layout
                cells = to_cells(layout, manifest.counters, servers=len(parts))
                run_in_parallel(
                    [partial(p.write_cells, e) for p, e in zip(parts, cells, strict=True)]
                )
    if optimizer:
        update = strategy.updates.get_update(model.optimizer)
        update.refresh_mirrors()
        update.reset_worker_states()
        runtime.local_slots.free()
