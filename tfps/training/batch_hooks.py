"""After which steps workers wait for the hooks of callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from tfps.training.acting_steps import next_action
from tfps.training.batch_callbacks import needs_lock_step


class BatchHooks:
    """The batch hooks of one `fit` or `evaluate`.

    Args:
        callbacks: of it.
        kind: ``"train"`` or ``"test"``.
        setting: one of `tfps.training.batch_callbacks.SETTINGS`.

    Attributes:
        lock_step: whether workers wait after each execution.
        stops_at_nan: whether a worker ends whose loss is not finite.

    Example:

    >>> hooks = BatchHooks([keras.callbacks.ModelCheckpoint("a.keras", save_freq=100)])
    >>> hooks.next_stop(1, steps_per_call=1), hooks.next_stop(100, steps_per_call=1)
    (100, 100)
    """

    def __init__(
        self, callbacks: Sequence[Any] = (), *, kind: str = "train", setting: str = "auto"
    ) -> None:
        self.lock_step = needs_lock_step(callbacks, kind=kind, setting=setting)
        self._callbacks = callbacks if kind == "train" else ()
        self._looks = setting != "sampled"
        self.stops_at_nan = any(
            isinstance(callback, keras.callbacks.TerminateOnNaN) for callback in self._callbacks
        )
        self._asked_steps = 0
        self._stop_steps: int | None = 0

    def next_stop(self, upto_steps: int, *, steps_per_call: int) -> int | None:
        """Return after how many steps of the epoch workers wait; None: not before it ends.

        Args:
            upto_steps: of the epoch, that a call waits for.
            steps_per_call: of an execution.
        """
        if self.lock_step:
            return upto_steps
        is_new_epoch, self._asked_steps = upto_steps < self._asked_steps, upto_steps
        is_behind = self._stop_steps is not None and self._stop_steps < upto_steps
        if is_new_epoch or is_behind or upto_steps <= steps_per_call:
            done = (upto_steps - 1) // steps_per_call * steps_per_call
            self._stop_steps = next_action(
                self._callbacks, done_steps=done, steps_per_call=steps_per_call, looks=self._looks
            )
        return self._stop_steps
