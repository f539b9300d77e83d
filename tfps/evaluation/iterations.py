"""The count of applied updates that an optimizer keeps, and what it shows of it."""

from __future__ import annotations

from typing import Any

import keras


def counter_of(optimizer: Any) -> Any:
    """Return the variable behind `optimizer.iterations`.

    With accumulated gradients that property is a quotient of it, and a wrapper has one of its own
    that it does not use.
    """
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer._iterations


def set_iterations(model: keras.Model, count: int) -> int:
    """Set a model's counter as a checkpoint has it; return the iterations that it means."""
    if model.optimizer is None:
        return count
    counter_of(model.optimizer).assign(count)
    return int(model.optimizer.iterations)
