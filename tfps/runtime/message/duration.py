"""Measures the durations of operations in a graph."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def take_timestamp_after(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Take a timestamp when all tensors are ready."""
    with tf.control_dependencies(list(tensors)):
        return tf.timestamp()


def measure_microseconds(begin: tf.Tensor, *, until: Sequence[tf.Tensor]) -> tf.Tensor:
    """Measure the int64 microseconds from a timestamp until some tensors are ready."""
    return microseconds_between(begin, take_timestamp_after(until))


def microseconds_between(begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Return the int64 microseconds between two timestamps."""
    return tf.cast((end - begin) * 1e6, tf.int64)


def begin_timing(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Take a timestamp when tensors are ready; return it, and copies of the tensors after it.

    Args:
        tensors: not the arguments of a server's function: if one of those is read early,
            TensorFlow's graph optimizers mix up the outputs of later branches.
    """
    begin = take_timestamp_after(tensors)
    with tf.control_dependencies([begin]):
        return begin, [tf.identity(tensor) for tensor in tensors]


def measure_seconds(begin: tf.Tensor, *, until: object) -> tf.Tensor:
    """Measure the float64 seconds from a timestamp until a structure's tensors are ready."""
    leaves = tf.nest.flatten(until, expand_composites=True)
    return take_timestamp_after([leaf for leaf in leaves if leaf is not None]) - begin
