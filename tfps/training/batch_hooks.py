"""Compute the steps after which workers wait for callbacks' hooks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfps.bridge.method_scope import get_thread_writes
from tfps.training.acting_steps import next_action_step
from tfps.training.batch_callbacks import may_change_things

logger = logging.getLogger(__name__)

WATCHED_CALLS = 20  # in lock-step, in which hooks that change nothing show it
UNTIMED_CALLS = 2  # of them: the first ones start the workers
LATE_CHANGE = (
    "the callback %s changed something (a weight, the learning rate or another variable, or it "
    "stopped) after step %d of the epoch, which counts from step %d on. It had changed nothing "
    "in the first %d executions, so workers did not wait for it; from now on they wait for the "
    "batch hooks of each step%s. To wait from the first step on, set batch_callbacks='lock_step' "
    "in the strategy; to never wait, 'sampled'."
)


class BatchHooks:
    """The batch hooks of one `fit` or `evaluate`.

    Args:
        callbacks: of it.
        kind: ``"train"`` or ``"test"``.
        setting: one of `tfps.training.batch_callbacks.SETTINGS`.

    Attributes:
        stops_at_nan: whether a worker ends whose loss is not finite.
        watched: callbacks that may change something, and are called in lock-step as long as they do
            or may do so.

    Example:

    >>> hooks = BatchHooks([keras.callbacks.ModelCheckpoint("a.keras", save_freq=100)])
    >>> hooks.next_stop(1, steps_per_call=1), hooks.next_stop(100, steps_per_call=1)
    (100, 100)
    """

    def __init__(
        self, callbacks: Sequence[Any] = (), *, kind: str = "train", setting: str = "auto"
    ) -> None:
        self._stops = "stop_training" if kind == "train" else "stop_evaluating"
        self._is_lock_step = setting == "lock_step"
        self.watched = [
            callback
            for callback in callbacks
            if setting == "auto" and may_change_things(callback, kind=kind)
        ]
        self._callbacks = callbacks if kind == "train" else ()
        self._includes_logging = setting != "sampled"
        self.stops_at_nan = any(
            isinstance(callback, keras.callbacks.TerminateOnNaN) for callback in self._callbacks
        )
        self._calls = 0
        self._began_s = self._sampled_s = 0.0
        self._steps_per_call = 1
        self._per_second: float | None = None  # in lock-step
        self._has_changed = False
        self._asked_steps = 0
        self._stop_steps: int | None = 0

    @property
    def must_wait(self) -> bool:
        """Whether workers wait for the hooks of every execution now."""
        is_watching = bool(self.watched) and self._calls <= WATCHED_CALLS
        return self._is_lock_step or self._has_changed or is_watching

    def next_stop(self, upto_steps: int, *, steps_per_call: int) -> int | None:
        """Return the step of the epoch at which workers wait, or None if they do not.

        Args:
            upto_steps: of the epoch, that a call waits for.
            steps_per_call: of an execution.
        """
        self._record_call(steps_per_call)
        if self.must_wait:
            return upto_steps
        is_new_epoch, self._asked_steps = upto_steps < self._asked_steps, upto_steps
        is_behind = self._stop_steps is not None and self._stop_steps < upto_steps
        if is_new_epoch or is_behind or upto_steps <= steps_per_call:
            done = (upto_steps - 1) // steps_per_call * steps_per_call
            self._stop_steps = next_action_step(
                self._callbacks,
                done_steps=done,
                steps_per_call=steps_per_call,
                includes_logging=self._includes_logging,
            )
        return self._stop_steps

    def _record_call(self, steps_per_call: int) -> None:
        """Record one execution; after the first ones, compute the steps per second in lock-step."""
        self._calls += 1
        now_s = time.monotonic()
        if self._calls == UNTIMED_CALLS + 1:
            self._began_s = now_s
        elif self._calls == WATCHED_CALLS + 1:
            steps = (WATCHED_CALLS - UNTIMED_CALLS) * steps_per_call
            self._per_second = steps / max(now_s - self._began_s, 1e-6)
            self._sampled_s = now_s
        self._steps_per_call = steps_per_call

    def call_watched(self, callback: Any, model: Any, call: Callable[[], None]) -> bool:
        """Call a hook; return whether it changed the model after workers had gone on.

        Args:
            callback: the callback that has the hook.
            model: the model that is trained or evaluated.
            call: calls the hook.
        """
        if not any(callback is watched for watched in self.watched):
            call()
            return False
        before = (get_thread_writes(), getattr(model, self._stops, False))
        must_wait = self.must_wait
        call()
        changes = (get_thread_writes(), getattr(model, self._stops, False)) != before
        self._has_changed = self._has_changed or changes
        return changes and not must_wait

    def warn_late_change(self, callback: Any, meant_steps: int, done_steps: int) -> None:
        """Warn that a callback's change took effect after more steps than the callback could see.

        Args:
            callback: the callback that made the change.
            meant_steps: the steps of the epoch after which the callback made it.
            done_steps: the steps of the epoch that workers took without the change.
        """
        rates, seconds = "", time.monotonic() - self._sampled_s
        if self._per_second and seconds:
            steps = (self._calls - WATCHED_CALLS) * self._steps_per_call
            rates = f", {self._per_second:.0f} instead of about {steps / seconds:.0f} per second"
        name = type(callback).__name__
        logger.warning(LATE_CHANGE, name, meant_steps, done_steps + 1, WATCHED_CALLS, rates)
