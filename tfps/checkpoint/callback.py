"""The Keras callback that saves in the background of `fit`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import keras

from tfps.checkpoint.attempts import Attempts
from tfps.checkpoint.manager import CheckpointManager
from tfps.errors import CheckpointNotSaved, refuse

logger = logging.getLogger(__name__)


class Checkpoint(keras.callbacks.Callback):
    """Saves with a `tfps.CheckpointManager` after epochs, or after steps, in the background.

    Use it as a callback of `fit`. Its batch hook only counts, so workers do not wait for it. If a
    checkpoint cannot be written, because the disk is full or the folder cannot be used, it warns,
    training continues, and later hooks try again: 10 s after the first failure at the earliest,
    then after twice as long each time, up to 10 minutes. The end of the training waits for the last
    save, repeats it if the latest attempt has failed, and raises if that fails, too. The next hook
    raises any other error of a save.

    Args:
        manager: the manager that saves, with its folder.
        every_epochs: epochs from one checkpoint to the next; 1 unless ``every_steps`` is given.
        every_steps: steps from one checkpoint to the next, instead of epochs.

    Raises:
        ConfigError: both numbers, or one that is not above 0.
        CheckpointNotSaved: at the end of the training, if the last checkpoint cannot be written.

    Example:

    >>> import keras, numpy as np, tfps
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> manager = tfps.CheckpointManager(model, "checkpoints")
    >>> last = manager.restore_latest()
    >>> data = np.ones((8, 4), "float32")
    >>> history = model.fit(
    ...     data, data[:, 0], epochs=3, initial_epoch=last.epoch if last else 0, verbose=0,
    ...     callbacks=[tfps.callbacks.Checkpoint(manager)],
    ... )
    >>> manager.latest.epoch
    3
    """

    def __init__(
        self,
        manager: CheckpointManager,
        *,
        every_epochs: int | None = None,
        every_steps: int | None = None,
    ) -> None:
        super().__init__()
        _check(manager, every_epochs=every_epochs, every_steps=every_steps)
        self._begin(manager, every_epochs or (None if every_steps else 1), every_steps)

    def _begin(
        self, manager: CheckpointManager, every_epochs: int | None, every_steps: int | None
    ) -> None:
        self._manager, self._every_epochs, self._every_steps = manager, every_epochs, every_steps
        self._epoch = self._steps = 0
        self._batch = -1  # the last completed batch of this epoch
        self._attempts = Attempts()

    @property
    def steps_to_save(self) -> int | None:
        """The number of steps until the next save; None: the callback saves after epochs."""
        return (
            None
            if self._every_steps is None
            else self._every_steps - self._steps % self._every_steps
        )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch, self._batch = epoch, -1

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        before = self._steps
        self._steps += batch - self._batch  # more than one with `steps_per_execution`
        self._batch = batch
        if self.steps_to_save is not None:
            self._raise_and_count(self._manager.check)
            self._save_if(self._is_due(before), logs)

    def _is_due(self, before: int) -> bool:
        """Return whether to save now; `before` are the steps before the call that has ended."""
        every = self._every_steps
        return every is not None and self._steps // every > before // every

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._raise_and_count(self._manager.check)
        self._epoch = epoch + 1
        if self._every_epochs is not None:
            self._save_if(self._epoch % self._every_epochs == 0, logs)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._raise_and_count(self._manager.wait)
        if self._attempts.failures:
            self._save(logs, background=False)
            self._attempts = Attempts()

    def _save_if(self, is_due: bool, logs: dict[str, Any] | None) -> None:
        """Save if a checkpoint is due or the last one has failed, and the pause is over."""
        is_missing = self._attempts.failures and not self._manager.is_saving
        if (is_due or is_missing) and self._attempts.may_save(now_s=time.monotonic()):
            self._raise_and_count(lambda: self._save(logs))

    def _save(self, logs: dict[str, Any] | None, *, background: bool = True) -> None:
        self._manager.save(epoch=self._epoch, step=self._steps, metrics=logs, background=background)

    def _raise_and_count(self, at: Callable[[], None]) -> None:
        """Call a function that raises the last save's error, and count a failure."""
        was_saving = self._manager.is_saving
        try:
            at()
        except CheckpointNotSaved:  # already in the log
            self._attempts = self._attempts.after_failure(now_s=time.monotonic())
            logger.warning(
                "training continues without that checkpoint. The next attempt follows at the end "
                "of training, or in %.0f s at the earliest; %d have failed",
                self._attempts.pause_s,
                self._attempts.failures,
            )
        else:
            if was_saving and not self._manager.is_saving:
                self._attempts = Attempts()


def _check(manager: Any, *, every_epochs: Any, every_steps: Any) -> None:
    problems = []
    if not isinstance(manager, CheckpointManager):
        problems.append(f"manager: received {manager!r}, expected a tfps.CheckpointManager")
    if every_epochs is not None and every_steps is not None:
        problems.append("every_epochs, every_steps: received both, expected one; remove the other")
    problems += find_wrong_counts(every_epochs=every_epochs, every_steps=every_steps)
    refuse(problems, source="tfps.callbacks.Checkpoint")


def find_wrong_counts(**counts: Any) -> list[str]:
    """Return a sentence for each argument that is neither None nor a whole number above 0."""
    return [
        f"{name}: received {value!r}, expected a whole number of at least 1"
        for name, value in counts.items()
        if value is not None
        and (not isinstance(value, int) or isinstance(value, bool) or value < 1)
    ]
