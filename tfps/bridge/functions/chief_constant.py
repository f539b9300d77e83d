"""Small numbers that the chief passes to functions of workers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def chief_constant(value: Any, dtype: tf.DType) -> tf.Tensor:
    """A tensor in this process, also where a function is about to be called on a worker.

    In the device scope of such a call TensorFlow would send the number to the worker at once and
    keep Python's lock until it has arrived: a worker that hangs would stop the whole chief.

    Args:
        value: a number, or several.
        dtype: of the tensor.
    """
    with tf.device(None):
        return tf.constant(value, dtype)
