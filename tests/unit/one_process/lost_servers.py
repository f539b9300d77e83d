"""Servers of one process that lose all that they hold, as one does that is started anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tfps
from tfps.errors import CheckpointError
from tfps.recovery.servers.server_loss import ServerLoss
from tfps.runtime.coordinator.control_plane import bringing_servers_back
from tfps.strategy.strategy_recovery import StrategyRecovery


def recover(
    strategy: tfps.ParameterServerStrategy, folder: Path, *, every_steps: int | None
) -> None:
    """Give a strategy of one process the recovery that one of a cluster has."""
    fault_tolerance = tfps.FaultTolerance(checkpoints=folder, every_steps=every_steps)
    strategy.run_state.recovery = StrategyRecovery(strategy, fault_tolerance)


def saver(
    strategy: tfps.ParameterServerStrategy, model: Any, folder: Path
) -> tfps.CheckpointManager:
    """Return a manager that saves the model, and whose checkpoints fill lost servers."""
    return tfps.CheckpointManager(model, folder)


def lose(strategy: tfps.ParameterServerStrategy, servers: Sequence[int]) -> list[ServerLoss]:
    """Let servers lose what they hold and be filled again, while no closure runs."""
    runtime, recovery = strategy.runtime, strategy.run_state.recovery
    assert isinstance(recovery, StrategyRecovery)
    anew = [runtime.servers[index] for index in servers]
    living = [server for server in runtime.servers if server not in anew]
    with bringing_servers_back():
        for server in anew:
            for resource, record in list(server.contents.records.items()):
                if record is not None:
                    resource.destroy()
        try:
            losses = recovery.restore(anew, living)
        except CheckpointError:
            for server in anew:
                runtime.recreate_contents(server)  # it is freed in the end, as one that is there
            raise
    recovery.servers.losses.extend(losses)
    for server in runtime.servers:
        server.lost = None
    return losses
