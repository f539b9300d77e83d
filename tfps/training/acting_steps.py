"""Finds the steps after which callbacks act, and where workers therefore stop. No TensorFlow."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import keras

from tfps.checkpoint.callback import Checkpoint

# How far ahead a callback is asked; there it is asked again.
MAX_STEPS_AHEAD = 10_000


def saves_at_steps(callback: Any) -> bool:
    """Return whether a callback saves after a number of steps, as `ModelCheckpoint` can."""
    frequency = getattr(callback, "save_freq", "epoch")
    is_number = isinstance(frequency, int) and frequency > 0
    return hasattr(callback, "_should_save_on_batch") and is_number


def writes_at_steps(callback: Any) -> bool:
    """Return whether a callback writes logs after a number of steps."""
    return isinstance(callback, keras.callbacks.TensorBoard) and callback.update_freq != "epoch"


def next_action_step(
    callbacks: Iterable[Any], *, done_steps: int, steps_per_call: int, includes_logging: bool
) -> int | None:
    """Return the number of steps of the epoch after which the next callback acts, or None.

    Asked before the function of a call runs, and after its hooks for the call's begin.

    Args:
        callbacks: of a `fit`.
        done_steps: of the epoch.
        steps_per_call: of an execution.
        includes_logging: whether to include callbacks that only write logs.
    """
    calls = [
        count
        for callback in callbacks
        for count in [
            _calls_until_action(
                callback, done_steps, steps_per_call, includes_logging=includes_logging
            )
        ]
        if count is not None
    ]
    return done_steps + min(calls) * steps_per_call if calls else None


def _calls_until_action(
    callback: Any, done: int, per_call: int, *, includes_logging: bool
) -> int | None:
    if isinstance(callback, Checkpoint):
        steps = callback.steps_to_save
        return None if steps is None else -(-steps // per_call)
    if saves_at_steps(callback):
        probe = copy.copy(callback)  # it counts when it is asked
        farthest = max(1, min(MAX_STEPS_AHEAD, callback.save_freq) // per_call + 1)
        ends = (done + (call + 1) * per_call - 1 for call in range(farthest))
        found = (number for number, end in enumerate(ends, 1) if probe._should_save_on_batch(end))
        return next(found, farthest)
    if includes_logging and writes_at_steps(callback):
        return 1 + -callback._global_train_batch % int(callback.update_freq)
    return None
