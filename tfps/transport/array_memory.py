"""The memory of NumPy arrays that TensorFlow has used as tensors."""

from __future__ import annotations

import tensorflow as tf


def release_arrays() -> None:
    """Free the NumPy arrays that were the memory of deleted tensors.

    Tensors are deleted on threads without Python's lock, so TensorFlow frees the arrays later: when
    a PyFunc ends, which is too late if that needs the memory, or when an eager tensor is deleted.
    """
    tensor = tf.constant(0)
    del tensor
