"""The trace of a server's function: what it opens by name, its constants and its mask."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private

_trace = threading.local()


class ServerTrace:
    """The handles opened by name in the trace of one server function."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.graph = private.current_graph()
        self.handles: dict[str, tf.Tensor] = {}
        self.constants: dict[tuple[Any, ...], tf.Tensor] = {}
        self.mask: tf.Tensor | None = None


@contextlib.contextmanager
def tracing_server_function(device: str) -> Iterator[None]:
    """Open variables by name instead of capturing them while a server function is traced.

    TensorFlow's placer moves a `RemoteCall` with a resource handle among its arguments onto the
    server, which makes it sends and receives; without such an argument it is a single request.
    """
    previous = getattr(_trace, "current", None)
    _trace.current = ServerTrace(device)
    try:
        yield
    finally:
        _trace.current = previous


@contextlib.contextmanager
def use_mask(condition: tf.Tensor) -> Iterator[None]:
    """Let assignments in a server function keep the old value unless a condition holds."""
    _trace.current.mask = condition
    try:
        yield
    finally:
        _trace.current.mask = None


def get_current_trace() -> ServerTrace | None:
    """Return the trace of the server function that this thread traces; None without one."""
    return None if tf.executing_eagerly() else getattr(_trace, "current", None)


def get_mask() -> tf.Tensor | None:
    """Return the condition without which assignments keep the old value; None without one."""
    current = get_current_trace()
    return None if current is None else current.mask


def in_server_function() -> bool:
    """Return whether a server function is being traced on this thread."""
    return get_current_trace() is not None


def keep_with_server_function(value: Any) -> None:
    """Keep an object alive as long as the traced server function; also works in a branch."""
    with _trace.current.graph.as_default():
        private.keep_with_graph(value)


def to_constant(value: Any, dtype: tf.DType = tf.int64) -> tf.Tensor:
    """Convert a number or an array to a constant tensor; return a tensor unchanged.

    In a server function each graph has one constant per number, since tracing another one takes as
    long as any operation.
    """
    if tf.is_tensor(value):
        return value
    if isinstance(value, np.ndarray) or not in_server_function():
        return tf.constant(value, dtype)
    constants, key = _trace.current.constants, (private.current_graph(), dtype, value)
    if key not in constants:
        with tf.control_dependencies(None):
            constants[key] = tf.constant(value, dtype)
    return constants[key]
