"""The restore of one server's rows from a checkpoint of this job."""

from __future__ import annotations

from typing import Any

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.checkpoint.commit import MARKER
from tfps.checkpoint.contents import Contents, find_contents
from tfps.checkpoint.file_channel import FileChannel
from tfps.checkpoint.manager import CheckpointManager
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.mismatch import check_fit
from tfps.checkpoint.names import named_variables
from tfps.checkpoint.server_restore import ServerRestore, shard_moves
from tfps.checkpoint.servers import server_devices_of, strategy_of
from tfps.errors import CheckpointError


def restore_lost_rows(
    manager: CheckpointManager, server: Any, *, checkpoint: int | None = None
) -> Manifest:
    """Fill a server whose variables exist again without their values; reads only its rows.

    Args:
        manager: has checkpoints of the model.
        server: `tfps.runtime.coordinator.server.Server`.
        checkpoint: its number; None: the newest sound one of this job.

    Returns:
        The manifest of the checkpoint.

    Raises:
        CheckpointError: this job has no checkpoint, or the server held what none of them holds.
        tf.errors.UnavailableError: the server is lost again.
    """
    if checkpoint is not None:
        manifest: Manifest | None = manager.newest_of([checkpoint])
    else:
        manifest = manager.newest_of_this_job()
    if manifest is None:
        raise CheckpointError(
            f"this job has saved or restored no checkpoint in {manager.directory} before ps "
            f"{server.index} was lost; save one when training begins ("
            "tfps.FaultTolerance with every_steps does)"
        )
    contents = find_contents_of_manager(manager)
    strategy = strategy_of(manager.model)
    check_all_are_stored(
        server, contents, others=[] if strategy is None else strategy.runtime.contents
    )
    restore_rows(manager, server, manifest=manifest, contents=contents)
    return manifest


def find_contents_of_manager(manager: CheckpointManager) -> Contents:
    """Return the places of the variables of a manager's model."""
    strategy = strategy_of(manager.model)
    return find_contents(named_variables(manager.model), servers=server_devices_of(strategy))


def restore_rows(
    manager: CheckpointManager, server: Any, *, manifest: Manifest, contents: Contents
) -> None:
    """Write the rows of a server from a checkpoint.

    Args:
        manager: has the checkpoint.
        server: `tfps.runtime.coordinator.server.Server`.
        manifest: the manifest of the checkpoint.
        contents: the contents of the model.

    Raises:
        CheckpointError: the checkpoint does not fit the model.
        tf.errors.UnavailableError: the server is lost.
    """
    folder = manager.directory_of(manifest.number)
    check_fit(manifest.tensors, contents.tensors, source=str(folder))
    rules = {name: tensor.rule for name, tensor in contents.tensors.items()}
    channel = FileChannel(server)
    try:
        is_shared = manager.is_shared
        if is_shared is None:
            is_shared = channel.sees(folder / MARKER, (folder / MARKER).read_bytes())
        part = ServerRestore(channel, server, is_shared=is_shared)
        part.begin()
        shards = contents.get_shards_on(server.index)
        part.fill(folder, manifest, list(shard_moves(manifest, shards, rules)))
        part.end()
    finally:
        channel.close()


def variables_with_copy_on(device: str, contents: Any) -> list[ServerVariable]:
    """Return the variables of other servers that have a copy on this one.

    Args:
        device: the device of a server.
        contents: the contents of all servers.
    """
    return [
        variable
        for each in contents
        if each.device != device
        for variable in list(each.variables.values())
        if device in variable.devices
    ]


def check_all_are_stored(server: Any, contents: Contents, *, others: Any) -> None:
    """Raise an error if a lost server held variables that checkpoints do not contain.

    Raises:
        CheckpointError: the server held variables that no checkpoint of the model holds.
    """
    natives = [shard.native for shard in contents.get_shards_on(server.index)]
    held = {native.shared_name for native in natives}
    held |= {native.slab.shared_name for native in natives if native.slab is not None}
    held |= {variable.shared_name for variable in variables_with_copy_on(server.device, others)}
    missing = sorted(
        resource.shared_name
        for resource, record in list(server.contents.records.items())
        if record is not None and record.initial_value is None
        if resource.shared_name not in held
    )
    if missing:
        raise CheckpointError(
            f"no checkpoint of this model holds these values of ps {server.index}: "
            f"{', '.join(missing)}; make them weights of the model that the checkpoint manager "
            "saves, and start the job again"
        )
