"""Saves the checkpoints during `fit` that `tfps.FaultTolerance` needs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from tfps.checkpoint.callback import Checkpoint
from tfps.checkpoint.manager import CheckpointManager


class RecoveryCheckpoints(Checkpoint):
    """Saves checkpoints during `fit`, and one at its begin for a server that is lost early."""

    def on_train_begin(self, logs: Any = None) -> None:
        self._raise_and_count(lambda: self._save(logs))

    def save_after_warm_up(self, steps: int) -> None:
        """Save a checkpoint after warm-up steps, whose mean only the servers hold.

        Args:
            steps: of the warm-up, all workers'; they are the first ones of the epoch.
        """
        self._raise_and_count(lambda: self._save_at(self._steps + steps))

    def _save_at(self, step: int) -> None:
        self._manager.save(epoch=self._epoch, step=step)


class RoundCheckpoints(Checkpoint):
    """Saves also where an epoch begins or ends, and waits for these saves, for `RoundPoints`.

    Args:
        manager: what saves.
        every_steps: save each time after this many steps, in the background; None: do not.
        is_kept: returns whether a complete checkpoint has what the servers hold. If so, nothing is
            saved: while the same is saved again, no other checkpoint counts as of that state.
    """

    def __init__(
        self, manager: CheckpointManager, *, every_steps: int | None, is_kept: Callable[[], bool]
    ) -> None:
        super().__init__(manager, every_steps=every_steps or sys.maxsize)
        self._is_kept = is_kept
        self.is_active = True  # until the end of its `fit`
        self._begun = 0  # the steps before the epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._begun = self._steps

    def on_train_end(self, logs: Any = None) -> None:
        self.is_active = False
        super().on_train_end(logs)

    def _save(self, logs: Any, *, background: bool = True) -> None:
        if not self._is_kept():
            super()._save(logs, background=background)

    def save_and_wait(self, *, done_steps: int | None) -> None:
        """Save the present state and wait, unless an attempt has failed just before.

        Args:
            done_steps: of the epoch, if all of them are done; None: it goes on, or is to begin.
        """
        if self._attempts.may_save(now_s=time.monotonic()):
            epoch, step = self._epoch, self._steps
            if done_steps is not None:
                epoch, step = epoch + 1, self._begun + done_steps
            self._raise_and_count(lambda: self._wait_for(epoch=epoch, step=step))

    def _wait_for(self, *, epoch: int, step: int) -> None:
        self._manager.save(epoch=epoch, step=step, background=False)
