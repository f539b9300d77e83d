"""Small constants that the chief passes to functions on workers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def chief_constant(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Return a constant tensor in this process, in any device scope.

    In a worker's device scope TensorFlow would send the number to the worker immediately and hold
    Python's lock until it has arrived: a worker that hangs would stop the whole chief.

    Args:
        value: a number or a sequence of numbers.
        dtype: the dtype of the tensor.
    """
    with tf.device(None):
        return tf.constant(value, dtype)
