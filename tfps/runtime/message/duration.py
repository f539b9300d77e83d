"""How long something takes that a graph does."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def timestamp_after(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The time when all of them are there."""
    with tf.control_dependencies(list(tensors)):
        return tf.timestamp()


def microseconds(begin: tf.Tensor, *, until: Sequence[tf.Tensor]) -> tf.Tensor:
    """From a timestamp until tensors are there, int64."""
    return tf.cast((timestamp_after(until) - begin) * 1e6, tf.int64)


def begun(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The time when tensors are there, and the same ones from then on.

    Args:
        tensors: no arguments of a server's function. Where one of those is read before what they
            are for, TensorFlow's optimizers of graphs mix up the outputs of branches behind it.
    """
    begin = timestamp_after(tensors)
    with tf.control_dependencies([begin]):
        return begin, [tf.identity(tensor) for tensor in tensors]


def seconds_since(begin: tf.Tensor, *, until: object) -> tf.Tensor:
    """From a timestamp until all tensors of a structure are there, float64; it may hold None."""
    leaves = tf.nest.flatten(until, expand_composites=True)
    return timestamp_after([leaf for leaf in leaves if leaf is not None]) - begin
