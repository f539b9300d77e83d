"""Record the points from which training in rounds can be repeated after a server's loss.

While a run of `fit` trains, it can go back to the points that it has noted: one when it begins, and
one with each checkpoint. Where no run trains, a checkpoint has all variables as they are, so that
nothing has to be repeated: one is saved, and waited for, before a run begins and when it has ended,
unless there is one already. Scheduled functions are not repeated.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Sequence
from typing import Any

from tfps.checkpoint.commit import Folder
from tfps.checkpoint.manager import CheckpointManager
from tfps.checkpoint.manifest import Manifest
from tfps.consistency.round_point import RoundPoint
from tfps.errors import CheckpointError
from tfps.recovery.servers.round_restoration import (
    count_chief_writes,
    count_server_starts,
    current_round_point,
)
from tfps.runtime.coordinator.function_membership import changes_variables
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.training.run.function_checkpoints import FunctionCheckpoints
from tfps.training.run.recovery_checkpoints import RoundCheckpoints
from tfps.training.run.ticket_run import TicketRun

logger = logging.getLogger(__name__)

NO_CHECKPOINT = (
    "there is no checkpoint of the trained variables. Under tfps.Synchronous, fit saves "
    "checkpoints of the model in the folder of tfps.FaultTolerance where it needs them, and "
    "every_steps saves them between scheduled functions; set both for this model"
)
CANNOT_REPEAT = (
    "variables have changed since checkpoint %d in a way that cannot be repeated: only steps of "
    "fit can be repeated, with a dataset function only in a tfps.ShardedDataset; train_on_batch, "
    "scheduled functions, what evaluate and predict assign, and writes of this script cannot. "
    "Start the job again from its newest checkpoint"
)
FUNCTIONS_NOT_SAVED = (
    "scheduled functions under tfps.Synchronous: the loss of a parameter server ends this job, "
    "and no checkpoint has what the functions begin from. Save a checkpoint before the functions "
    "and others between them, with manager.save() or a tfps.CheckpointManager of the model in "
    "the folder of tfps.FaultTolerance(checkpoints=..., every_steps=...)"
)
NOT_REPEATABLE = (
    "fit with a dataset function under tfps.Synchronous: the loss of a parameter server in an "
    "epoch ends this job, since workers cannot read their data again. To continue after a loss, "
    "pass tfps.ShardedDataset(function, number=n)."
)


class RoundPoints:
    """Records the points that a job's servers can go back to.

    Args:
        runtime: the job.
        every_steps: after how many scheduled functions a checkpoint is saved; None: never.

    Attributes:
        run: the one that trains and can go back; None: there is none.
        functions: the checkpoints between scheduled functions.
        lock: held while the run goes back, and while it is decided that it need not any more.
    """

    def __init__(self, runtime: Runtime, *, every_steps: int | None = None) -> None:
        self._runtime = runtime
        self.functions = FunctionCheckpoints(every_steps=every_steps)
        self._manager: CheckpointManager | None = None
        self._savers: list[RoundCheckpoints] = []  # of a `fit`, and of those within its hooks
        self._newest: RoundPoint | None = None
        self.run: TicketRun | None = None
        self.lock = threading.Lock()

    def use_manager(self, manager: CheckpointManager) -> None:
        """Use the checkpoints of a manager from now on."""
        if self._manager is None or self._manager.model is not manager.model:
            self._newest, self.functions.is_unsaved = None, True
        self._manager = manager
        manager.on_snapshot = self._on_checkpoint

    def save_with(self, saver: RoundCheckpoints) -> None:
        """Let a callback save the checkpoints during its `fit`."""
        self._savers = [*filter(_is_active, self._savers), saver]

    def start_run(self, run: TicketRun) -> None:
        """Record that a run is about to issue its first tickets."""
        self.run = None
        run.resumed = functools.partial(self._add_point, run)
        self._add_point(run)

    def finish_run(self, run: TicketRun) -> None:
        """Record that a run has ended and is drained, and save its result."""
        while run.changes_variables and not run.is_of_one_batch and self._saver is not None:
            starts = count_server_starts(self._runtime)
            run.drain()
            self._save_if_needed(run.completed)
            with self.lock:
                if count_server_starts(self._runtime) == starts:
                    self.run = None
                    break
        self.run = None  # one that it has interrupted is noted anew when it goes on
        self.functions.is_unsaved |= run.changes_variables

    def forget_run(self) -> None:
        """Record that a run has ended with an error; its callbacks save no longer."""
        self._savers.clear()
        self.run = None
        self.functions.is_unsaved = True

    def before_closure(self, closure: Any) -> None:
        """Save a checkpoint, if one is due, before a scheduled function changes variables."""
        functions, manager = self.functions, self._manager
        if not changes_variables(closure):
            return
        if self.run is None:
            if functions.is_unsaved and self.is_kept():
                functions.mark_saved()
            if manager is not None and functions.is_due:
                functions.save(manager)
            elif functions.is_unsaved and not functions.functions_since_save:
                warn_once(FUNCTIONS_NOT_SAVED)
        functions.count_function()

    def current_checkpoint(self, living: Sequence[Server], *, reading: Sequence[int] | None) -> int:
        """Return the number of the checkpoint with the variables' present values, between runs.

        Args:
            living: the servers that hold what they held.
            reading: the ledger of the ticket server as it was read last; None: unknown.

        Raises:
            CheckpointError: there is no such checkpoint.
        """
        point = self._newest
        if point is None or point.checkpoint not in self._complete_checkpoints():
            raise CheckpointError(NO_CHECKPOINT)
        layout, writes = self._runtime.ticket_server.layout, count_chief_writes(self._runtime)
        ledgers = {server.index: server.cells().tolist() for server in living}
        if living:
            same = point.is_unchanged(layout, ledgers, writes)
        else:
            same = reading is not None and reading[layout.VERSION] == point.versions(layout)[0]
            same = same and not point.written_since(writes)
        if not same:
            raise CheckpointError(CANNOT_REPEAT % point.checkpoint)
        return point.checkpoint

    def refresh(self) -> None:
        """Update the newest point after servers were filled from its checkpoint."""
        if self._newest is not None:
            self._newest = current_round_point(self._runtime, checkpoint=self._newest.checkpoint)

    @property
    def _saver(self) -> RoundCheckpoints | None:
        """The saver of the innermost `fit` that is running."""
        return next(filter(_is_active, reversed(self._savers)), None)

    def _add_point(self, run: TicketRun) -> None:
        """Save the state of a run that is at rest as a point to go back to."""
        while self._saver is not None and not run.is_of_one_batch:
            starts = count_server_starts(self._runtime)
            self._save_if_needed(None)
            if run.changes_variables and not run.is_repeatable:
                warn_once(NOT_REPEATABLE)
            if not run.changes_variables or not run.is_repeatable:
                return
            run.sample()
            if self._newest is not None and self.is_kept():
                point = current_round_point(self._runtime, checkpoint=self._newest.checkpoint)
                run.add_point(point, committed=self._complete_checkpoints())
            with self.lock:
                if count_server_starts(self._runtime) == starts:
                    self.run = run if run.points else None
                    return

    def _save_if_needed(self, done_steps: int | None) -> None:
        """Save a checkpoint and wait for it, unless there is one of the servers' present values."""
        while (saver := self._saver) is not None and not self.is_kept():
            starts = count_server_starts(self._runtime)
            saver.save_and_wait(done_steps=done_steps)
            if count_server_starts(self._runtime) == starts:
                return  # it is saved, or a warning has said why it cannot be

    def _on_checkpoint(self, manifest: Manifest) -> None:
        """Record a new checkpoint; workers are drained, and servers have recorded all values."""
        layout, starts = self._runtime.ticket_server.layout, count_server_starts(self._runtime)
        point = current_round_point(self._runtime, checkpoint=manifest.number)
        counters = manifest.counters
        if counters is None or tuple(counters.versions) != point.versions(layout):
            return  # another thread of the program goes on scheduling functions
        with self.lock:
            if count_server_starts(self._runtime) != starts:
                return
            self._newest = point
            self.functions.mark_saved()
            if self.run is not None:
                self.run.add_point(point, committed=self._complete_checkpoints())

    def _complete_checkpoints(self) -> list[int]:
        """Return the numbers of the checkpoints that are complete."""
        return [] if self._manager is None else Folder(self._manager.directory).numbers()

    def is_kept(self) -> bool:
        """Return whether a complete checkpoint contains the values that the servers have now."""
        point = self._newest
        if (
            point is None
            or self.functions.functions_since_save
            or point.checkpoint not in self._complete_checkpoints()
        ):
            return False
        ledgers = {s.index: s.cells().tolist() for s in self._runtime.servers}
        layout = self._runtime.ticket_server.layout
        return point.is_unchanged(layout, ledgers, count_chief_writes(self._runtime))


def _is_active(saver: RoundCheckpoints) -> bool:
    return saver.is_active


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, unless this process has logged it before."""
    logger.warning(message)
