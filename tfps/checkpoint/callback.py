"""The Keras callback that saves while `fit` goes on."""

from __future__ import annotations

from typing import Any

import keras

from tfps.checkpoint.manager import CheckpointManager
from tfps.errors import ConfigError


class Checkpoint(keras.callbacks.Callback):
    """Saves with a `tfps.CheckpointManager` after epochs, or after steps, in the background.

    Its batch hook only counts, so workers run freely. A save that has failed is raised by the next
    hook; the end of the training waits for the last one.

    Args:
        manager: what saves, and into which folder.
        every_epochs: epochs from one checkpoint to the next; 1 unless ``every_steps`` is given.
        every_steps: how many steps, instead.

    Raises:
        ConfigError: both numbers, or one that is not above 0.

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
        self._manager, self._every_steps = manager, every_steps
        self._every_epochs = every_epochs or (None if every_steps else 1)
        self._epoch = self._steps = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps += 1
        if self._every_steps is not None:
            self._manager.check()
            if self._steps % self._every_steps == 0:
                self._manager.save(epoch=self._epoch, step=self._steps, metrics=logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._manager.check()
        done = epoch + 1
        if self._every_epochs is not None and done % self._every_epochs == 0:
            self._manager.save(epoch=done, step=self._steps, metrics=logs)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._manager.wait()


def _check(manager: Any, *, every_epochs: Any, every_steps: Any) -> None:
    problems = []
    if not isinstance(manager, CheckpointManager):
        problems.append(f"manager: received {manager!r}, expected a tfps.CheckpointManager")
    if every_epochs is not None and every_steps is not None:
        problems.append("received every_epochs and every_steps, expected one of the two")
    for name, value in (("every_epochs", every_epochs), ("every_steps", every_steps)):
        if value is not None and (
            not isinstance(value, int) or isinstance(value, bool) or value < 1
        ):
            problems.append(f"{name}: received {value!r}, expected a whole number of at least 1")
    if problems:
        raise ConfigError(problems, source="tfps.callbacks.Checkpoint")
