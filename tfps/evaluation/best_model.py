"""Keeps the best of the evaluated models."""

from __future__ import annotations

import os
from typing import Any

import keras


class SidecarEvaluatorModelExport(keras.callbacks.ModelCheckpoint):
    """Saves the model whenever `tfps.SidecarEvaluator` has found it better than all before.

    Use it as a callback of a `tfps.SidecarEvaluator`, if the training job itself does not evaluate
    and so cannot tell which of its checkpoints is the best.

    Source: `tf_keras.callbacks.SidecarEvaluatorModelExport`.

    Args:
        export_filepath: the path, as `filepath` of `keras.callbacks.ModelCheckpoint`; ``{epoch}``
            is the number at the end of the checkpoint's name, ``{iterations}`` its updates.
        checkpoint_filepath: an argument of tf_keras; not used here.
        monitor: the name of a metric of the evaluation, without ``val_``.
        options: further arguments of `ModelCheckpoint`; ``save_freq`` may be ``"eval"``, as in
            tf_keras.

    Raises:
        ValueError: the path or an option is invalid for `ModelCheckpoint`.

    Example:

    >>> best = SidecarEvaluatorModelExport("best-{epoch}.keras", monitor="loss")
    >>> best.save_best_only
    True

    Then ``tfps.SidecarEvaluator(model, data, "checkpoints", callbacks=[best]).start()``.
    """

    def __init__(
        self,
        export_filepath: str | os.PathLike[str],
        checkpoint_filepath: str | os.PathLike[str] | None = None,
        *,
        monitor: str = "loss",
        **options: Any,
    ) -> None:
        if options.get("save_freq") == "eval":
            del options["save_freq"]
        super().__init__(export_filepath, monitor=monitor, save_best_only=True, **options)
        self._checkpoint_fields: dict[str, Any] = {}
        self._evaluations = 0

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._checkpoint_fields = dict(logs or {})

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._evaluations += 1
        number = self._checkpoint_fields.get("number")
        epoch = self._evaluations if number is None else int(number)  # Keras makes logs floats
        iterations = int(self.model.optimizer.iterations) if self.model.optimizer else 0
        # Keras counts epochs from 1 in the names of files.
        self.on_epoch_end(epoch - 1, {**(logs or {}), "iterations": iterations})
