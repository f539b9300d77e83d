"""Checkpoints between scheduled functions in rounds, which `tfps.FaultTolerance` asks for."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfps.bridge.closures.closure_queue import ClosureQueue
from tfps.checkpoint.attempts import Attempts
from tfps.checkpoint.commit import Folder
from tfps.checkpoint.manager import CheckpointManager
from tfps.errors import CheckpointError, CheckpointNotSaved

logger = logging.getLogger(__name__)

CHANGED_BY_FUNCTIONS = (
    "scheduled functions under tfps.Synchronous have changed variables since the newest "
    "checkpoint, and tfps cannot repeat them. "
)
NEWEST = (
    "The newest checkpoint in %s is number %d: start the job again, restore it with "
    "restore_latest of a tfps.CheckpointManager, and schedule the later functions again"
)
NO_CHECKPOINT = (
    "There is no checkpoint in %s: start the job again from the beginning. To save checkpoints "
    "between scheduled functions, use a tfps.CheckpointManager of the model in the folder of "
    "tfps.FaultTolerance(checkpoints=..., every_steps=...)"
)


class FunctionCheckpoints:
    """Saves before the first scheduled function, and some functions after each save of any kind.

    If a checkpoint cannot be written, the program goes on, and later functions try again: 10 s
    after the first failure at the earliest, then after twice as long each time, up to 10 minutes.

    Args:
        every_steps: functions from one save to the next; None: only the program saves.

    Attributes:
        is_unsaved: whether something else has changed variables, so that it is not known whether a
            checkpoint has what the next function begins from.
        functions_since_save: how many functions that change variables were scheduled since the
            newest checkpoint.
    """

    def __init__(self, *, every_steps: int | None) -> None:
        self._every_steps = every_steps
        self._attempts = Attempts()
        self._queue: ClosureQueue | None = None
        self.is_unsaved = True
        self.functions_since_save = 0

    def watch_closures(self, queue: ClosureQueue, before: Callable[[Any], None]) -> None:
        """Begin to watch the closures of a coordinator.

        Args:
            queue: its threads may outlive the strategy, and do not keep it alive.
            before: a method that is called with each closure before it is queued.
        """
        reference = weakref.WeakMethod(before)

        def on_scheduled(closure: Any) -> None:
            if (call := reference()) is not None:
                call(closure)

        self._queue, queue.on_scheduled = queue, on_scheduled

    def mark_saved(self) -> None:
        """Record that a checkpoint contains the servers' present variables."""
        if self._queue is None or self._queue.is_idle:  # else it may lack some of the functions
            self.is_unsaved, self.functions_since_save = False, 0

    def count_function(self) -> None:
        """Record that a function that changes variables is about to be queued."""
        self.functions_since_save += 1

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due before the next function."""
        if self._every_steps is None:
            return False
        if not self.is_unsaved and self.functions_since_save < self._every_steps:
            return False
        return self._attempts.may_save(now_s=time.monotonic())

    def save(self, manager: CheckpointManager) -> None:
        """Save in the background, once all functions have ended."""
        try:
            manager.save()
        except CheckpointNotSaved:  # which is in the log
            self._attempts = self._attempts.after_failure(now_s=time.monotonic())
            logger.warning(
                "functions go on without that checkpoint. The first function after %.0f s tries "
                "again; %d attempts have failed",
                self._attempts.pause_s,
                self._attempts.failures,
            )
        else:
            self._attempts = Attempts()

    def refuse_loss(self, folder: Path) -> None:
        """Refuse to go on without a server, where functions would have to be repeated.

        Args:
            folder: of the checkpoints.

        Raises:
            CheckpointError: functions have changed variables since the newest checkpoint.
        """
        if not self.functions_since_save:
            return
        numbers = Folder(folder).numbers()
        advice = NEWEST % (folder, max(numbers)) if numbers else NO_CHECKPOINT % folder
        raise CheckpointError(CHANGED_BY_FUNCTIONS + advice)
