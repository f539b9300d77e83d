"""The examples of a batch: how many there are, and its parts for several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def count_examples(batch: Any) -> tf.Tensor:
    """The length of the first component's first axis; 1 for a scalar."""
    first = tf.nest.flatten(batch)[0]
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int64)
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int64)
    if first.shape.rank == 0:
        return tf.constant(1, tf.int64)
    return tf.shape(first, out_type=tf.int64)[0]


def take_examples(component: Any, begin: Any, size: Any) -> Any:
    """Some consecutive examples of a dense, ragged or sparse component."""
    if not isinstance(component, tf.SparseTensor):
        return component[begin : begin + size]
    sizes = component.dense_shape[1:]
    start = tf.concat([[tf.cast(begin, tf.int64)], tf.zeros_like(sizes)], 0)
    return tf.sparse.slice(component, start, tf.concat([[size], sizes], 0))


def concat_examples(parts: Sequence[Any]) -> Any:
    """The examples of several dense, ragged or sparse parts."""
    if isinstance(parts[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(parts))
    return tf.concat(list(parts), 0)


def split_batch(batch: Any, count: int) -> tuple[list[Any], list[tf.Tensor]]:
    """Cut a batch into consecutive parts, as equal as they can be.

    A batch of fewer examples than parts leaves parts with nothing of their own. They repeat the
    first example, because layers and losses of no example answer NaN, and have a share of 0.

    Args:
        batch: structure of dense, ragged and sparse tensors with examples along the first axis;
            scalars and other things go into every part.
        count: how many parts.

    Returns:
        The parts, and their shares (see `runtime.program.shares`) as float64 scalars.
    """
    examples = count_examples(batch)
    least, rest = examples // count, examples % count
    parts, shares = [], []
    for index in range(count):
        size = least + tf.cast(index < rest, tf.int64)
        begin = tf.where(size > 0, index * least + tf.minimum(tf.cast(index, tf.int64), rest), 0)
        parts.append(_part(batch, begin, size, place=(index, count)))
        total = tf.cast(examples, tf.float64)
        shares.append(tf.math.divide_no_nan(tf.cast(size * count, tf.float64), total))
    return parts, shares


def _part(batch: Any, begin: tf.Tensor, size: tf.Tensor, *, place: tuple[int, int]) -> Any:
    index, count = place

    def cut(component: Any) -> Any:
        if isinstance(component, (tf.RaggedTensor, tf.SparseTensor)):
            return take_examples(component, begin, tf.maximum(size, 1))
        if not isinstance(component, tf.Tensor) or component.shape.rank == 0:
            return component
        part = take_examples(component, begin, tf.maximum(size, 1))
        examples = component.shape[0]
        if examples is None:
            return part
        length = max(1, examples // count + (index < examples % count))
        return tf.ensure_shape(part, [length, *component.shape[1:]])

    return tf.nest.map_structure(cut, batch)
