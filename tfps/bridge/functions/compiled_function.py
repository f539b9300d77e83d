"""Functions of a server that XLA compiles, under names that no other process gives."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_OF_THIS_PROCESS = secrets.token_hex(8)


def compiled_function(function: Callable[..., Any]) -> Any:
    """Let XLA compile a function that a server runs.

    A task keeps what it has compiled for as long as its process lives, by the function's name.
    TensorFlow numbers names anew in each process, so what the next chief asks for under the same
    name would run as the function of the chief before, with its job and its hyperparameters.
    """
    function.__name__ = f"{function.__name__}_{_OF_THIS_PROCESS}"
    return tf.function(function, jit_compile=True, autograph=False)
