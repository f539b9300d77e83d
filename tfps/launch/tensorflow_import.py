"""TensorFlow for tasks that serve: they run graphs, and nothing of Keras."""

from __future__ import annotations

import sys

KERAS = "keras"


def import_without_keras() -> None:
    """Import TensorFlow, and leave Keras to whoever asks for it afterwards.

    TensorFlow imports Keras at its end, and Keras matplotlib where there is one: a quarter of
    the CPU that a task takes to start, or more.
    """
    if KERAS in sys.modules:
        import tensorflow

        return
    sys.modules[KERAS] = None  # type: ignore[assignment]  # as Python keeps what is not to be found
    try:
        import tensorflow  # noqa: F401
    finally:
        del sys.modules[KERAS]
