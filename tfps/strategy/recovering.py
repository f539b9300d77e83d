"""What a strategy with a `tfps.Recovery` does about lost servers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import ServerVariable
from tfps.checkpoint.manager import CheckpointManager
from tfps.errors import CheckpointError
from tfps.recovery.guard import Guard
from tfps.recovery.kept_tasks import KeptTasks, ask_for_servers
from tfps.recovery.recovery import Recovery
from tfps.recovery.restoration import Restoration, Seen
from tfps.recovery.server_loss import ServerLoss
from tfps.recovery.server_return import ServerReturn
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.training.recovery_checkpoints import RecoveryCheckpoints
from tfps.training.ticket_run import TicketRun


class Recovering:
    """Brings the servers of a strategy back.

    Args:
        strategy: not kept alive.
        recovery: what the user wants.
        guard: of the strategy; it finds servers that hang.
    """

    def __init__(self, strategy: Any, recovery: Recovery, *, guard: Guard) -> None:
        self._strategy = weakref.ref(strategy)
        self.recovery = recovery
        self._manager: CheckpointManager | None = None
        if isinstance(recovery.checkpoints, CheckpointManager):
            self._adopt(recovery.checkpoints)
        runtime = strategy.runtime
        self._restoration = Restoration(
            runtime, checkpoints=lambda: self._manager, seen=self._seen, strangers=self._strangers
        )
        # What outlives the strategy, until it is freed, keeps its model by no other way either.
        itself, job = weakref.ref(self), weakref.ref(runtime)

        def restore(*servers: Any) -> ServerLoss:
            recovering = itself()
            if recovering is None:
                raise CheckpointError("nothing refers to the strategy any more")
            return recovering._restore(*servers)

        self.servers = ServerReturn(
            runtime,
            deadline_s=guard.policy.deadline_s,
            restore=restore,
            told=guard.server_is_back,
            waits=recovery.on_lost_server == "wait",
        )
        guard.servers = self.servers
        self._kept: KeptTasks | None = None
        if recovery.on_lost_server == "wait":
            tasks = runtime.processes.values()
            self._kept = ask_for_servers(tasks, unless=lambda: _is_over(job()))

    def _restore(
        self, server: Server, known: Sequence[Server], living: Sequence[Server]
    ) -> ServerLoss:
        loss = self._restoration.restore(server, known, living)
        if self._kept is not None:
            loss.into(self._kept.restarts)
        return loss

    @property
    def updates_lost(self) -> int:
        """On rows of all servers that came back."""
        return self.servers.updates_lost

    def attend(self, coordinator: Any) -> None:
        """Watch the closures of the strategy's coordinator."""
        queue, failures = private.closure_queue(coordinator), private.failure_handler(coordinator)
        self.servers.attend(queue, failures)

    def callbacks_for(self, model: Any) -> list[Any]:
        """What `fit` of a model needs to be recovered."""
        checkpoints = self.recovery.checkpoints
        if not isinstance(checkpoints, CheckpointManager) and (
            self._manager is None or self._manager.model is not model
        ):
            self._adopt(CheckpointManager(model, checkpoints))
        assert self._manager is not None
        if self.recovery.every_steps is None or self._manager.model is not model:
            return []
        return [RecoveryCheckpoints(self._manager, every_steps=self.recovery.every_steps)]

    def _adopt(self, manager: CheckpointManager) -> None:
        self._manager = manager
        manager.outlives_servers = True

    def _seen(self) -> Seen | None:
        """What the run at hand, or the last one, has read of the ticket server."""
        strategy = self._strategy()
        if strategy is None:
            return None
        runs: list[TicketRun] = [strategy._active_run, strategy._last_run]
        follower = strategy._active_follower
        while follower is not None:  # the runs that this one interrupts
            run, follower = follower.outer_run
            runs.append(run)
        known = [run for run in runs if run is not None]
        if not known:
            return None

        def write_totals() -> None:
            for run in known:
                run.write_totals()

        return Seen(max(known, key=lambda run: run.sampled_s).cells, write_totals)

    def _strangers(self, device: str) -> list[str]:
        strategy = self._strategy()
        named = {} if strategy is None else dict(strategy._primitives.known)
        natives = {name: getattr(variable, "_value", variable) for name, variable in named.items()}
        return [
            name
            for name, native in natives.items()
            if not isinstance(native, ServerVariable) and getattr(native, "device", "") == device
        ]


def _is_over(runtime: Runtime | None) -> bool:
    return runtime is None or runtime.closed
