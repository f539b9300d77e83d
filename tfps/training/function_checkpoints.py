"""The checkpoints that `tfps.Recovery` has scheduled functions save, where they go in rounds."""

from __future__ import annotations

import logging
import time

from tfps.checkpoint.attempts import Attempts
from tfps.checkpoint.manager import CheckpointManager
from tfps.errors import CheckpointNotSaved

logger = logging.getLogger(__name__)


class FunctionCheckpoints:
    """Saves before the first function and after so many; a program's own saves count as well.

    Where one cannot be written the program goes on, and later functions try again: 10 s after the
    first failure at the earliest, then after twice as long each time, up to 10 minutes.

    Args:
        every_steps: how many functions; None: only the program saves.
    """

    def __init__(self, *, every_steps: int | None) -> None:
        self._every_steps = every_steps
        self._attempts = Attempts()
        self._since = 0  # functions since the newest checkpoint

    def taken(self) -> None:
        """Somebody has saved what the servers hold."""
        self._since = 0

    def count(self) -> None:
        """A function is about to be queued."""
        self._since += 1

    def is_due(self, *, is_missing: bool) -> bool:
        """Whether to save before the next function.

        Args:
            is_missing: there is no checkpoint that functions could be repeated from.
        """
        if self._every_steps is None:
            return False
        if not is_missing and self._since < self._every_steps:
            return False
        return self._attempts.may_save(now_s=time.monotonic())

    def save(self, manager: CheckpointManager) -> None:
        """Save in the background, once all functions have ended."""
        try:
            manager.save()
        except CheckpointNotSaved:  # which is in the log
            self._attempts = self._attempts.failed(now_s=time.monotonic())
            logger.warning(
                "functions go on without that checkpoint. The next attempt is made with the first "
                "function after %.0f s; %d have failed",
                self._attempts.pause_s,
                self._attempts.failures,
            )
        else:
            self._attempts = Attempts()
