"""Reads and sets the number of updates that an optimizer has applied."""

from __future__ import annotations

from typing import Any

import keras


def counter_of(optimizer: Any) -> Any:
    """Return the variable behind `optimizer.iterations`.

    With accumulated gradients the property is a quotient of the variable, and a wrapper has an
    unused variable of its own.
    """
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer._iterations


def set_iterations(model: keras.Model, count: int) -> int:
    """Set a model's counter to that of a checkpoint, and return the resulting iterations."""
    if model.optimizer is None:
        return count
    counter_of(model.optimizer).assign(count)
    return int(model.optimizer.iterations)
