"""Compiles server functions with XLA, under names that are unique to this process."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_PROCESS_SUFFIX = secrets.token_hex(8)


def compiled_function(function: Callable[..., Any]) -> Any:
    """Return a `tf.function` that a server runs, compiled by XLA.

    A task caches compiled functions by name for as long as its process lives. TensorFlow restarts
    the numbers in names in each process, so a request of the next chief under the same name would
    run the function of the previous chief, with its job and its hyperparameters.
    """
    function.__name__ = f"{function.__name__}_{_PROCESS_SUFFIX}"
    return tf.function(function, jit_compile=True, autograph=False)
