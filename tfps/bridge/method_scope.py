"""Tracks the Keras method that a thread runs, and whether the thread uses the strategy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_running = threading.local()


def is_training() -> bool:
    """Return whether this thread runs a model's `fit` or `train_on_batch`, outside evaluation."""
    return getattr(_running, "method", None) in ("fit", "train_on_batch")


def count_thread_write() -> None:
    """Add one to the number of this thread's writes to the servers."""
    _running.writes = get_thread_writes() + 1


def get_thread_writes() -> int:
    """Return the number of this thread's writes to the servers: weights, learning rate, state."""
    return getattr(_running, "writes", 0)


def runs_eagerly(model: Any) -> bool:
    """Return whether a model of our strategy is running a step eagerly on the chief."""
    return "_tfps_eager_strategy" in model.__dict__


@contextlib.contextmanager
def running_method(method: str) -> Iterator[None]:
    """Mark this thread as running a method of a model while the context is open."""
    outer = getattr(_running, "method", None)
    _running.method = method
    try:
        yield
    finally:
        _running.method = outer


def is_strategy_disabled(model: Any) -> bool:
    """Return whether this thread currently uses a model without its strategy."""
    return id(model) in getattr(_running, "without_strategy", ())


def is_any_strategy_disabled() -> bool:
    """Return whether this thread currently uses some model without its strategy."""
    return bool(getattr(_running, "without_strategy", ()))


@contextlib.contextmanager
def without_strategy(model: Any) -> Iterator[None]:
    """Disable a model's strategy on this thread while the context is open."""
    outer: frozenset[int] = getattr(_running, "without_strategy", frozenset())
    _running.without_strategy = outer | {id(model)}
    try:
        yield
    finally:
        _running.without_strategy = outer
