"""Runs the user's callbacks over many evaluations, with logs about the evaluated checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras


class EvaluationCallbacks(keras.callbacks.CallbackList):
    """A `CallbackList` that is used for many calls of `evaluate`.

    Keras sets up a list of callbacks anew for each `evaluate`: `TensorBoard` would start a file for
    every checkpoint and not finish the last one. Unlike in Keras, the logs of `on_test_begin`
    contain the checkpoint, its number and its iterations; those of `on_test_end` are the metrics.

    Args:
        callbacks: the user's callbacks.
        model: the model to evaluate.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback], model: keras.Model) -> None:
        super().__init__(callbacks=list(callbacks), model=model, epochs=1, verbose=0)
        self._checkpoint_fields: dict[str, Any] = {}

    def announce(self, *, checkpoint: str, number: int | None, iterations: int) -> None:
        """Set the checkpoint of the next evaluation."""
        self._checkpoint_fields = {
            "checkpoint": checkpoint,
            "number": number,
            "iterations": iterations,
        }

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_begin({**(logs or {}), **self._checkpoint_fields})

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        super().on_test_end(logs)
        for callback in self.callbacks:
            if isinstance(callback, keras.callbacks.TensorBoard):
                callback._val_writer.flush()  # Keras does this only at the end of training
