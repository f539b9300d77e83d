"""Keeps Python's state of the threads that TensorFlow owns."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

# Part of a thread's state, so it ends with the thread.
_kept = threading.local()


def keep_thread_state(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that Python's state of the threads that call it is kept.

    For each call on a thread that Python does not know, Python allocates a state and a stack, and
    frees both when the call ends: 12 us of the 28 us that a call costs. TensorFlow keeps the
    threads of its pools, so few states are kept, and they are reused.

    Args:
        function: the function of a `tf.raw_ops.PyFunc`.
    """

    @functools.wraps(function)
    def keeping(*arguments: Any) -> Any:
        if not hasattr(_kept, "state"):
            _kept.state = ctypes.pythonapi.PyGILState_Ensure()  # one more than are released
        return function(*arguments)

    return keeping
