"""Take and write all values of a model at one moment, on the servers and on the chief."""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.checkpoint.blocks import group_blocks_by_file, slice_array
from tfps.checkpoint.bundle import write_bundle
from tfps.checkpoint.contents import Contents
from tfps.checkpoint.layout import RowBlock
from tfps.checkpoint.manifest import CHIEF
from tfps.checkpoint.parallel import run_in_parallel
from tfps.checkpoint.server_snapshot import ServerSnapshot
from tfps.checkpoint.servers import SavedStrategy
from tfps.runtime.coordinator.runtime import Runtime

logger = logging.getLogger(__name__)

_warned: weakref.WeakSet[Any] = weakref.WeakSet()  # the jobs that were warned about missing values


class Snapshot:
    """Takes snapshots of a model, as long as no variable moves.

    Args:
        contents: the variables to keep.
        servers: `tfps.runtime.coordinator.server.Server`s; none without a strategy.
        shared: for each server whether it sees the chief's file system.
    """

    def __init__(
        self, contents: Contents, *, servers: Sequence[Any], shared: Sequence[bool]
    ) -> None:
        self._on_chief = contents.get_shards_on(CHIEF)
        self.parts = [
            ServerSnapshot(server, contents.get_shards_on(server.index), is_shared=is_shared)
            for server, is_shared in zip(servers, shared, strict=True)
        ]
        self._values: dict[int, np.ndarray[Any, Any]] = {}

    def take(self) -> list[np.ndarray[Any, Any]]:
        """Take the snapshot while the workers are drained; return the ledgers of all servers."""
        number = time.time_ns()
        # A view of the variable's memory; an update of a variable with a view changes a copy.
        self._values = {id(shard): np.asarray(shard.native.numpy()) for shard in self._on_chief}
        return run_in_parallel([partial(part.take, number) for part in self.parts])

    def write(self, folder: Path) -> dict[str, tuple[RowBlock, ...]]:
        """Write the values of all servers in parallel, and return the files by name."""
        calls = [partial(part.write, folder) for part in self.parts]
        written = run_in_parallel([*calls, partial(self._write_chief_values, folder)])
        return {name: blocks for files in written for name, blocks in files.items()}

    def _write_chief_values(self, folder: Path) -> dict[str, tuple[RowBlock, ...]]:
        written = {}
        for position, file in enumerate(group_blocks_by_file(self._on_chief)):
            arrays = {
                block.key: slice_array(self._values[id(shard)], block) for shard, block in file
            }
            write_bundle(folder / f"chief-{position:05d}", arrays)
            written[f"chief-{position:05d}"] = tuple(block for _, block in file)
        return written

    def free(self, *, waits: bool = True) -> None:
        """Free the copied values on the servers; ``waits``: wait for lost ones that may return."""
        self._values = {}
        run_in_parallel([partial(_free_part, part, waits=waits) for part in self.parts])

    def close(self) -> None:
        """Close the channels to the servers."""
        for part in self.parts:
            with contextlib.suppress(tf.errors.OpError):  # to a lost server it is closed already
                part.close()


def take_drained(
    snapshot: Snapshot, strategy: SavedStrategy | None, *, on_rest: Callable[[], Mapping[str, Any]]
) -> tuple[list[np.ndarray[Any, Any]], Mapping[str, Any]]:
    """Drain the workers and take a snapshot. Returns the ledgers of all servers, and a state.

    Taken again if a server was restarted and filled meanwhile, so it is of one moment.

    Args:
        snapshot: the snapshot of a model.
        strategy: the strategy of the model, or None.
        on_rest: returns the state to save, when the workers are drained.
    """
    if strategy is None:
        return snapshot.take(), on_rest()
    _warn_of_unsaved_values(strategy.runtime)
    with strategy.runtime.turn.hold():
        while True:
            starts = [server.starts for server in strategy.runtime.servers]
            strategy.run_state.drain_all()
            state = on_rest()
            all_cells = snapshot.take()
            if [server.starts for server in strategy.runtime.servers] == starts:
                return all_cells, state


def _warn_of_unsaved_values(runtime: Runtime) -> None:
    """Log, once for a job, which values checkpoints do not contain."""
    if runtime.residuals.has_names and runtime not in _warned:
        _warned.add(runtime)
        logger.warning(
            "checkpoints do not hold the residuals of codecs, which stay on the workers: a job "
            "that resumes from a checkpoint starts with zero residuals"
        )


def _free_part(part: ServerSnapshot, *, waits: bool) -> None:
    try:
        part.free(waits=waits)
    except tf.errors.UnavailableError as error:
        logger.info("a snapshot on a parameter server went with it: %s", error)
