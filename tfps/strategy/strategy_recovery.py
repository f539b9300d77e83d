"""The recovery of lost servers in a strategy that keeps checkpoints."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.checkpoint.manager import CheckpointManager
from tfps.consistency.synchronous import Synchronous
from tfps.errors import CheckpointError
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.guard import Guard
from tfps.recovery.restarts.task_supervisor import TaskSupervisor, request_server_restarts
from tfps.recovery.servers.new_addresses import NewAddresses
from tfps.recovery.servers.restoration import LastReading, Restoration
from tfps.recovery.servers.round_restoration import RoundRestoration
from tfps.recovery.servers.server_identities import ServerIdentities
from tfps.recovery.servers.server_loss import ServerLoss
from tfps.recovery.servers.server_return import ServerReturn
from tfps.runtime.coordinator.connections import Connections
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.strategy.primitives.primitives import Primitives
from tfps.strategy.weak_method import make_weak_method
from tfps.training.fit_strategy import FitStrategy
from tfps.training.run.recovery_checkpoints import RecoveryCheckpoints, RoundCheckpoints
from tfps.training.run.round_points import RoundPoints
from tfps.training.run.ticket_run import TicketRun
from tfps.training.run_state import RunState


class RecoveredStrategy(FitStrategy, Protocol):
    """The members of a strategy that the recovery of its servers uses."""

    connections: Connections
    primitives: Primitives


class StrategyRecovery:
    """Recovers the lost servers of a strategy from checkpoints.

    Args:
        strategy: the strategy; this object does not keep it alive.
        fault_tolerance: the user's settings, with a folder of checkpoints.
    """

    def __init__(self, strategy: RecoveredStrategy, fault_tolerance: FaultTolerance) -> None:
        self._strategy = weakref.ref(strategy)
        guard = strategy.run_state.guard  # it finds servers that hang
        assert fault_tolerance.checkpoints is not None
        self._folder = Path(fault_tolerance.checkpoints)
        self._every_steps = fault_tolerance.every_steps
        self.manager: CheckpointManager | None = None
        self._own_manager: CheckpointManager | None = None  # made by `fit`, not by the user
        self._saver: RecoveryCheckpoints | None = None  # of the latest `fit`, if it saves
        # The points that runs of `fit` can go back to; None: the mode repeats no rounds.
        in_rounds = isinstance(strategy.consistency, Synchronous)
        self.points = (
            RoundPoints(strategy.runtime, every_steps=self._every_steps) if in_rounds else None
        )
        self._runtime = runtime = strategy.runtime
        runtime.on_checkpoint_manager = make_weak_method(self, "_use_manager")
        self._restoration = Restoration(runtime, self)
        self._rounds = RoundRestoration(runtime, self)
        new_addresses = NewAddresses(
            strategy.connections.resolve,
            cluster=lambda: runtime.cluster,
            deadline_s=guard.policy.deadline_s,
        )
        waits = fault_tolerance.on_lost_server == "wait"
        self.servers = ServerReturn(
            runtime,
            ServerIdentities(runtime, new_addresses, deadline_s=guard.policy.deadline_s),
            _JobView(self, guard, waits=waits),
        )
        guard.servers = self.servers
        self._begun_closures = 0  # the number of closures begun when the last run ended
        self._supervisor: TaskSupervisor | None = None
        if waits:
            tasks, job = runtime.processes.values(), weakref.ref(runtime)
            self._supervisor = request_server_restarts(tasks, not_needed=lambda: _has_ended(job()))

    def restore(self, restarted: Sequence[Server], living: Sequence[Server]) -> list[ServerLoss]:
        """Fill servers that were restarted; see `JobView`."""
        losses = self._restore_servers(restarted, living)
        if self._supervisor is not None:
            for loss in losses:
                loss.add_to_restarts(self._supervisor.restarts)
        return losses

    def _restore_servers(
        self, restarted: Sequence[Server], living: Sequence[Server]
    ) -> list[ServerLoss]:
        points = self.points
        self.refuse_loss()
        if points is None or self.manager is None:
            return self._restoration.restore_all(restarted, living)
        for server in restarted:
            self._restoration.refuse_uncheckpointed(server)
        with points.lock:
            if points.run is not None:
                return self._rounds.go_back(points.run, manager=self.manager, restarted=restarted)
            reading = self.last_reading()
            cells = reading.cells.tolist() if reading is not None and reading.is_current else None
            number = points.current_checkpoint(living, reading=cells)
            losses = self._restoration.restore_all(restarted, living, checkpoint=number)
            points.refresh()
            return losses

    def evict_workers(self) -> None:
        """Evict all workers, to end their waits in a round for one that uses a lost server."""
        run = None if self.points is None else self.points.run
        workers = range(self._runtime.workers) if run is not None else ()
        for worker in workers:
            incarnation = self._runtime.members.latest_incarnation(worker)
            if incarnation is not None:
                with contextlib.suppress(tf.errors.OpError):  # one more may be lost: tried again
                    self._runtime.members.evict(worker, incarnation, patience_s=0.0)

    def refuse_loss(self) -> None:
        """Refuse to go on if scheduled functions would have to be repeated; see `JobView`."""
        if self.points is not None:
            self.points.functions.refuse_loss(self._folder)

    def write_totals(self) -> None:
        """Write the metric totals that the chief has read back to the ticket server."""
        if (reading := self.last_reading()) is not None:
            reading.write_totals()

    def begin_run(self, run: TicketRun) -> None:
        """Record that a run is about to issue its first tickets."""
        if self.points is not None:
            self.points.start_run(run)

    def end_run(self, run: TicketRun, *, is_whole: bool) -> None:
        """Record that a run was drained; if it is not whole, an error has ended it."""
        if not is_whole:
            self.abandon_run()
            return
        if self.points is not None:
            self.points.finish_run(run)
        self._begun_closures = self._count_begun_closures()

    def abandon_run(self) -> None:
        """Record that a run has ended with an error."""
        if self.points is not None:
            self.points.forget_run()
        self._begun_closures = self._count_begun_closures()

    def _count_begun_closures(self) -> int:
        strategy = self._strategy()
        if strategy is None or strategy.run_state.coordinator is None:
            return 0
        return private.get_closure_queue(strategy.run_state.coordinator).started_count

    @property
    def updates_lost(self) -> int:
        """The number of updates that the rows of restored servers lack."""
        return self.servers.updates_lost

    def end(self, reason: str) -> bool:
        """Give up servers that are still lost; return whether one was lost."""
        return self.servers.end(reason)

    def watch_closures(self, coordinator: Any) -> None:
        """Watch the closures of the strategy's coordinator."""
        queue, failures = (
            private.get_closure_queue(coordinator),
            private.get_failure_handler(coordinator),
        )
        if self.points is not None:
            self.points.functions.watch_closures(queue, self.points.before_closure)
        self.servers.watch_closures(queue, failures)

    def callbacks_for(self, model: Any) -> list[Any]:
        """Return the callbacks that save checkpoints during `fit` of a model."""
        if self.manager is self._own_manager and (
            self._own_manager is None or self._own_manager.model is not model
        ):
            self._own_manager = CheckpointManager(model, self._folder)  # which calls `_use_manager`
        assert self.manager is not None
        if self.points is not None and self.manager.model is model:
            saver = RoundCheckpoints(
                self.manager, every_steps=self._every_steps, is_kept=self.points.is_kept
            )
            self.points.save_with(saver)
            return [saver]
        self._saver = None
        if self._every_steps is None or self.manager.model is not model:
            return []
        self._saver = RecoveryCheckpoints(self.manager, every_steps=self._every_steps)
        return [self._saver]

    def save_after_warm_up(self, steps: int) -> None:
        """Save a checkpoint after warm-up steps, if `fit` saves any.

        The servers hold the mean of these steps, but do not count them as updates, so
        `updates_lost` cannot show a loss.
        """
        if self._saver is not None:
            self._saver.save_after_warm_up(steps)

    def _use_manager(self, manager: CheckpointManager) -> None:
        """Use a new `CheckpointManager` if it saves into the folder of the fault tolerance.

        If it has the same model, it also takes over the checkpoints of the previous manager.
        """
        if manager.directory.resolve() != self._folder.resolve():
            return
        if self.manager is not None and self.manager.model is manager.model:
            manager.of_this_job = self.manager.of_this_job
        self.manager = manager
        manager.outlives_servers = True
        if self.points is not None:
            self.points.use_manager(manager)

    def has_rounds(self) -> bool:
        """Return whether workers may wait for each other now: in rounds, or in a warm-up."""
        strategy = self._strategy()
        if self._runtime.mode.backup_workers is not None:
            return True
        return strategy is not None and any(run.in_rounds for run in strategy.run_state.open_runs)

    def last_reading(self) -> LastReading | None:
        """Return the ledger that the current or last run has read from the ticket server."""
        strategy = self._strategy()
        if strategy is None:
            return None
        state = strategy.run_state
        is_current = state.run is not None or self._begun_closures == self._count_begun_closures()
        return find_last_reading(state, is_current=is_current)

    def uncheckpointed_names(self, device: str) -> list[str]:
        """Return the names of variables on a device that checkpoints cannot contain."""
        strategy = self._strategy()
        named = {} if strategy is None else dict(strategy.primitives.parameters.by_name)
        natives = {name: getattr(variable, "_value", variable) for name, variable in named.items()}
        return [
            name
            for name, native in natives.items()
            if not isinstance(native, ServerVariable) and getattr(native, "device", "") == device
        ]


def find_last_reading(state: RunState, *, is_current: bool) -> LastReading | None:
    """Return the newest ledger that a run has read from the ticket server.

    Args:
        state: the open runs and the last one; None is returned if there are none.
        is_current: whether no closure has begun since then.
    """
    last = [] if state.last_run is None else [state.last_run]
    # The oldest first: runs of one program share the place of their reports.
    known = sorted([*state.open_runs, *last], key=lambda run: run.sampled_s)
    if not known:
        return None

    def write_totals() -> None:
        for run in sorted(known, key=lambda run: run.sampled_s):  # of one program, the newest
            run.write_totals()

    return LastReading(known[-1].cells, write_totals, is_current)


class _JobView:
    """Gives `ServerReturn` access to the job, also after the strategy was collected.

    Args:
        recovery: the strategy's recovery; this object does not keep it, or its model, alive.
        guard: the strategy's guard.
        waits: whether the job waits for lost servers.
    """

    def __init__(self, recovery: StrategyRecovery, guard: Guard, *, waits: bool) -> None:
        self._recovery = weakref.ref(recovery)
        self.waits_for_servers = waits
        self.server_is_back = guard.server_is_back

    def refuse_loss(self) -> None:
        self._require_recovery().refuse_loss()

    def evict_workers(self) -> None:
        self._require_recovery().evict_workers()

    def restore(self, restarted: Sequence[Server], living: Sequence[Server]) -> list[ServerLoss]:
        return self._require_recovery().restore(restarted, living)

    def _require_recovery(self) -> StrategyRecovery:
        if (recovery := self._recovery()) is None:
            raise CheckpointError(
                "no variable refers to the strategy, expected one during training; keep a "
                "reference to the strategy"
            )
        return recovery


def _has_ended(runtime: Runtime | None) -> bool:
    return runtime is None or runtime.closed
