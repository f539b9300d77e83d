"""Splits a batch into parts for several devices, and merges the results of the parts.

A *share* is the size of a device's part of the batch, divided by the mean size: 1 if all are equal,
0 for a part without examples of its own. The shares of a step add up to the number of devices.
Keras divides losses by the number of replicas, so gradients weighted by shares add up to the
gradient of the mean over all examples, for parts of any sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def count_examples(batch: Any) -> tf.Tensor:
    """Return the number of examples in a batch: the length of its first component's first axis."""
    first = tf.nest.flatten(batch)[0]
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int64)
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int64)
    if first.shape.rank == 0:
        return tf.constant(1, tf.int64)
    return tf.shape(first, out_type=tf.int64)[0]


def take_examples(component: Any, begin: Any, size: Any) -> Any:
    """Slice consecutive examples from a dense, ragged or sparse component."""
    if not isinstance(component, tf.SparseTensor):
        return component[begin : begin + size]
    sizes = component.dense_shape[1:]
    start = tf.concat([[tf.cast(begin, tf.int64)], tf.zeros_like(sizes)], 0)
    return tf.sparse.slice(component, start, tf.concat([[size], sizes], 0))


def concat_examples(parts: Sequence[Any]) -> Any:
    """Concatenate the examples of several dense, ragged or sparse parts."""
    if isinstance(parts[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(parts))
    return tf.concat(list(parts), 0)


def split_batch(batch: Any, count: int) -> tuple[list[Any], list[tf.Tensor]]:
    """Cut a batch into consecutive parts, as equal as possible, and return their float64 shares.

    If there are fewer examples than parts, some parts have no example of their own. They repeat the
    first example, because layers and losses of an empty batch return NaN, and have a share of 0.

    Args:
        batch: structure of dense, ragged and sparse tensors with examples along the first axis;
            scalars and other things go into every part.
        count: the number of parts.
    """
    examples = count_examples(batch)
    least, rest = examples // count, examples % count
    parts, shares = [], []
    for index in range(count):
        size = least + tf.cast(index < rest, tf.int64)
        begin = tf.where(size > 0, index * least + tf.minimum(tf.cast(index, tf.int64), rest), 0)
        parts.append(_take_part(batch, begin, size, place=(index, count)))
        total = tf.cast(examples, tf.float64)
        shares.append(tf.math.divide_no_nan(tf.cast(size * count, tf.float64), total))
    return parts, shares


def _take_part(batch: Any, begin: tf.Tensor, size: tf.Tensor, *, place: tuple[int, int]) -> Any:
    def cut(component: Any) -> Any:
        is_dense = isinstance(component, tf.Tensor) and component.shape.rank != 0
        if not is_dense and not isinstance(component, tf.RaggedTensor | tf.SparseTensor):
            return component
        part = take_examples(component, begin, tf.maximum(size, 1))
        if not is_dense or component.shape[0] is None:
            return part
        index, count = place
        least, rest = divmod(component.shape[0], count)
        return tf.ensure_shape(part, [max(1, least + (index < rest)), *component.shape[1:]])

    return tf.nest.map_structure(cut, batch)


def compute_weighted_sum(values: Sequence[tf.Tensor], shares: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the sum of values times shares; a value with share 0 does not count, even NaN."""
    weighted = [
        tf.where(share > 0, value * tf.cast(share, value.dtype), tf.zeros_like(value))
        for value, share in zip(values, shares, strict=True)
    ]
    return sum(weighted[1:], weighted[0])


def compute_weighted_mean(values: Sequence[tf.Tensor], shares: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the mean of values, weighted by their shares."""
    return compute_weighted_sum(values, shares) / tf.cast(len(values), values[0].dtype)


def merge_gradients(
    parts: Sequence[Sequence[Any]], shares: Sequence[tf.Tensor], *, variables: Sequence[Any]
) -> list[Any]:
    """Merge the gradients of a worker's devices into the gradients of the whole step.

    Rows stay rows; the same row may come from several devices.
    """
    if len(parts) == 1:
        return list(parts[0])
    return [
        _merge_gradient(variable, each, shares)
        for variable, *each in zip(variables, *parts, strict=True)
    ]


def _merge_gradient(variable: Any, parts: Sequence[Any], shares: Sequence[tf.Tensor]) -> Any:
    if variable.overwrite_with_gradient:
        return compute_weighted_mean(parts, shares)  # its gradient is its next value
    if not all(isinstance(part, tf.IndexedSlices) for part in parts):
        return compute_weighted_sum([tf.convert_to_tensor(part) for part in parts], shares)
    rows = [
        compute_weighted_sum([p.values], [share]) for p, share in zip(parts, shares, strict=True)
    ]
    ids = tf.concat([part.indices for part in parts], 0)
    return tf.IndexedSlices(tf.concat(rows, 0), ids, parts[0].dense_shape)
