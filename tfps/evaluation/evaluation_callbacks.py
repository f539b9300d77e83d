"""The user's callbacks over many evaluations: set up once, and told what is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras


class EvaluationCallbacks(keras.callbacks.CallbackList):
    """Callbacks that stay the same from one `evaluate` to the next.

    A list given to `evaluate` is set up anew each time: `TensorBoard` would begin a file for every
    checkpoint and not finish the last one. `on_test_begin` gets what it gets nowhere in Keras, the
    checkpoint, its number and its iterations; the logs of `on_test_end` are the metrics, as always.

    Args:
        callbacks: the user's.
        model: what is evaluated.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback], model: keras.Model) -> None:
        super().__init__(callbacks=list(callbacks), model=model, epochs=1, verbose=0)
        self._about: dict[str, Any] = {}

    def announce(self, *, checkpoint: str, number: int | None, iterations: int) -> None:
        """Say what the next evaluation is of."""
        self._about = {"checkpoint": checkpoint, "number": number, "iterations": iterations}

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_begin({**(logs or {}), **self._about})

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_end(logs)
        for callback in self.callbacks:
            if isinstance(callback, keras.callbacks.TensorBoard):
                callback._val_writer.flush()  # Keras does so at the end of a training only
