"""The memory of deleted tensors: NumPy arrays, and what the C library keeps of freed memory."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import tensorflow as tf


def release_arrays() -> None:
    """Free the NumPy arrays that were the memory of deleted tensors.

    Tensors are deleted on threads without Python's lock, so TensorFlow frees the arrays later: when
    a PyFunc ends, which is too late if that needs the memory, or when an eager tensor is deleted.
    """
    tensor = tf.constant(0)
    del tensor


def give_back_memory() -> np.int64:
    """Give free memory back to the system, and return 1 if there was any.

    The C library keeps what was freed below 32 MiB for the thread that has allocated it. A server
    has many threads, so what each keeps adds up to several models.
    """
    gc.collect()  # the graphs of service loops that have ended
    release_arrays()
    return np.int64(ctypes.CDLL(None).malloc_trim(0))
