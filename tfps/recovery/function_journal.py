"""Keeps the scheduled functions since the newest checkpoints, and has them run once more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from tfps.bridge.closure_journal import ClosureJournal, afresh, is_repeat, is_with_iterators
from tfps.bridge.closure_queue import ClosureQueue
from tfps.consistency.function_log import FunctionLog
from tfps.consistency.round_point import RoundPoint
from tfps.runtime.coordinator.function_membership import changes_variables
from tfps.runtime.coordinator.runtime import Runtime

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
TOO_MANY = (
    "%d scheduled functions have ended since the newest checkpoints: those are forgotten, and a "
    "parameter server that is lost before the next checkpoint ends this job. Save more often: "
    "tfps.Recovery(checkpoints=<CheckpointManager>, every_steps=...) does."
)
OTHER_BATCHES = (
    "%d of the %d functions that are repeated take batches from iterators of their workers, which "
    "do not go back: they train on the batches that come next"
)


class FunctionJournal(ClosureJournal):
    """The scheduled functions that all servers can repeat together, under `Synchronous`.

    A function is in it once it has ended; those under way run again anyhow. What runs once more has
    a number of its own, and nobody waits for its result: who has scheduled it has got one already.

    Args:
        runtime: the job.
        before: called on the program's thread before a function is queued that changes variables.

    Attributes:
        repeated: how many functions were repeated so far.
    """

    steps_name: ClassVar[str] = "functions"

    def __init__(self, runtime: Runtime, *, before: Callable[[], None]) -> None:
        self._runtime, self._before = runtime, before
        self._log = FunctionLog[Any]()
        self._changed = threading.Condition()
        self._queue: ClosureQueue | None = None
        self._behind = 0  # functions that are repeated and have not ended again
        self.repeated = 0

    def attend(self, queue: ClosureQueue) -> None:
        """Begin to keep what a coordinator schedules."""
        self._queue = queue
        queue.journal = self

    @property
    def points(self) -> list[RoundPoint]:
        """Where servers can go back to, the oldest first."""
        with self._changed:
            return self._log.points

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing was scheduled since the newest point, or all of it is kept."""
        if self._queue is not None and not self._queue.is_idle:
            return False
        with self._changed:
            return self._log.since_newest == 0

    def scheduled(self, closure: Any) -> None:
        if changes_variables(closure):
            self._before()

    def finished(self, closure: Any) -> None:
        if not changes_variables(closure):
            return
        with self._changed:
            if self._behind and is_repeat(closure):
                self._behind -= 1
                self._changed.notify_all()
            could_be_repeated, known = bool(self._log.points), len(self._log)
            if not self._log.append(afresh(closure)) and could_be_repeated:
                logger.warning(TOO_MANY, known)

    def failed(self) -> None:
        self.break_off()

    def note(self, point: RoundPoint, *, committed: Collection[int]) -> None:
        """Let servers go back to where they are, unless functions are under way.

        Args:
            point: where they are.
            committed: the numbers of the checkpoints that are complete.
        """
        if self._queue is not None and self._queue.is_idle:
            with self._changed:
                self._log.note(point, committed=committed)

    def break_off(self) -> None:
        """Variables were changed by something that nobody can repeat."""
        with self._changed:
            self._log.break_off()
            self._behind = 0
            self._changed.notify_all()

    def go_back(self, point: RoundPoint) -> int:
        """Have the functions since a point run again; answers how many these are."""
        assert self._queue is not None
        with self._changed:
            functions = self._log.go_back(point)
            self._behind += len(functions)
            self.repeated += len(functions)
        others = sum(map(is_with_iterators, functions))
        if others:
            logger.warning(OTHER_BATCHES, others, len(functions))
        # Else the first who begins would run rounds by itself.
        self._queue.membership.all_begin(without=self._queue.barred)
        self._queue.put_first(functions)
        return len(functions)

    def catch_up(self) -> None:
        """Wait until variables are again what they were when a server was lost."""
        with self._changed:
            while self._behind and not self._runtime.closed and not self._has_failed:
                self._changed.wait(LOOK_EVERY_S)

    @property
    def _has_failed(self) -> bool:
        return self._queue is not None and self._queue.has_failed
