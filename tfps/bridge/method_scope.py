"""The method of Keras that a thread runs, and whether it uses the model's strategy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_running = threading.local()


def trains() -> bool:
    """Whether this thread is in a model's `fit` or `train_on_batch`, and in no evaluation in it."""
    return getattr(_running, "method", None) in ("fit", "train_on_batch")


def note_write() -> None:
    """Count that this thread has changed what the servers hold."""
    _running.writes = writes_of_this_thread() + 1


def writes_of_this_thread() -> int:
    """How often this thread has changed what the servers hold: weights, a learning rate, state."""
    return getattr(_running, "writes", 0)


def runs_eagerly(model: Any) -> bool:
    """Whether a model of our strategy runs a step eagerly on the chief right now."""
    return "_tfps_eager_strategy" in model.__dict__


@contextlib.contextmanager
def in_method(method: str) -> Iterator[None]:
    """While it is open, this thread is in a method of a model."""
    outer = getattr(_running, "method", None)
    _running.method = method
    try:
        yield
    finally:
        _running.method = outer


def is_put_aside(model: Any) -> bool:
    """Whether this thread uses the model without its strategy."""
    return id(model) in getattr(_running, "without_strategy", ())


@contextlib.contextmanager
def without_strategy(model: Any) -> Iterator[None]:
    """While it is open, this thread runs the model as if it was of no strategy."""
    outer: frozenset[int] = getattr(_running, "without_strategy", frozenset())
    _running.without_strategy = outer | {id(model)}
    try:
        yield
    finally:
        _running.without_strategy = outer
