"""Imports TensorFlow without Keras, for tasks that serve: they only run graphs."""

from __future__ import annotations

import sys

KERAS = "keras"


def import_without_keras() -> None:
    """Import TensorFlow, but not Keras, which can still be imported later.

    TensorFlow imports Keras, and Keras imports matplotlib if it is installed: a quarter of the
    CPU time of a task's start, or more.
    """
    if KERAS in sys.modules:
        import tensorflow

        return
    sys.modules[KERAS] = None  # type: ignore[assignment]  # as Python keeps what is not to be found
    try:
        import tensorflow  # noqa: F401
    finally:
        del sys.modules[KERAS]
