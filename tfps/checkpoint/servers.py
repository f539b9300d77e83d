"""Find the strategy and the servers of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tfps.checkpoint.file_channel import FileChannel
from tfps.checkpoint.names import optimizer_of
from tfps.checkpoint.parallel import run_in_parallel
from tfps.errors import CheckpointError
from tfps.optimizers.wrapped import assign_strategy
from tfps.runtime.compile.server_updates import ServerUpdates
from tfps.runtime.coordinator.runtime import Runtime


class Runs(Protocol):
    """Drains the runs of a strategy."""

    def drain_all(self) -> None:
        """Wait until no closure runs."""


class SavedStrategy(Protocol):
    """The part of a strategy that checkpoints use."""

    runtime: Runtime
    updates: ServerUpdates

    @property
    def run_state(self) -> Runs:
        """The runs of the strategy, which can be drained."""

    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which variables are created."""


def strategy_of(model: Any) -> SavedStrategy | None:
    """Return the `tfps.ParameterServerStrategy` under which a model was made, or None."""
    strategy = getattr(model, "_distribute_strategy", None)
    return strategy if getattr(strategy, "_is_tfps_strategy", False) else None


def server_devices_of(strategy: SavedStrategy | None) -> tuple[str, ...]:
    """Return the device of each parameter server of a strategy; none without a strategy."""
    return () if strategy is None else strategy.runtime.topology.servers


def build_optimizer(model: Any) -> None:
    """Make the optimizer's state, if nothing was trained yet, on the servers of its variables.

    Raises:
        CheckpointError: the model has no variables yet.
    """
    if not model.built or not model.variables:
        raise CheckpointError(
            f"model: received {model.name}, which is not built; give it a keras.Input, call "
            "model.build(...) or call the model once before you save or restore it"
        )
    optimizer, strategy = optimizer_of(model), strategy_of(model)
    if optimizer is None or not model.trainable_variables:
        return
    if strategy is None:
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        return
    if not optimizer.built:
        assign_strategy(optimizer, strategy)
        with strategy.scope():
            optimizer.build(model.trainable_variables)
        strategy.updates.get_update(optimizer)


@contextlib.contextmanager
def open_channels(servers: Sequence[Any]) -> Iterator[list[FileChannel]]:
    """Open channels to some servers while the context is open."""
    channels = [FileChannel(server) for server in servers]
    try:
        yield channels
    finally:
        for channel in channels:
            channel.close()


def find_servers_that_see(
    path: Path, content: bytes, *, channels: Sequence[FileChannel]
) -> list[bool]:
    """Return for each server whether it finds a file of the chief's."""
    return run_in_parallel([partial(channel.sees, path, content) for channel in channels])
