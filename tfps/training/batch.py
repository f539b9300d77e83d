"""What can be said of any batch: how many examples it holds, and what an empty one looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def empty_component(spec: tf.TensorSpec) -> np.ndarray[Any, Any]:
    """An empty value of one component; goes with the answer that there is no batch."""
    sizes = spec.shape.as_list() if spec.shape.rank else []
    return np.zeros([size or 0 for size in sizes], spec.dtype.as_numpy_dtype)
