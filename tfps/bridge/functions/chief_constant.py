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


def copy_to_chief(tensor: tf.Tensor) -> tf.Tensor:
    """Return a copy of a task's tensor in this process, in any device scope.

    TensorFlow's ``numpy()`` of another task's tensor creates an operation with a name of its own,
    which that task keeps in its cache of kernels as long as it lives: 3 kB for each call.
    """
    with tf.device(None), tf.device("/device:CPU:0"):
        return tf.identity(tensor)
