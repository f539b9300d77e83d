"""`training.loop = "fit"`: the job through Keras's own `fit`."""

from __future__ import annotations

import time
from typing import Any

import keras

from tfps.config import JobConfig
from tfps.job.epochs import Epoch, TrainingRecord
from tfps.job.inputs import Inputs


class EpochLog(keras.callbacks.Callback):
    """Notes what each epoch measured.

    Args:
        strategy: that trains; its rate is the one that the progress bar shows.
    """

    def __init__(self, strategy: Any) -> None:
        super().__init__()
        self.epochs: list[Epoch] = []
        self._strategy, self._began_s = strategy, 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began_s = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        rate = self._strategy._step_rate("train", since_s=self._began_s)
        self.epochs.append(
            Epoch(
                epoch=epoch + 1,
                steps=self.params["steps"],
                seconds=time.monotonic() - self._began_s,
                steps_per_s=None if rate is None else rate.per_second,
                metrics={name: float(value) for name, value in (logs or {}).items()},
            )
        )


def train_with_fit(strategy: Any, model: Any, inputs: Inputs, config: JobConfig) -> TrainingRecord:
    """Train a compiled model; answers what its epochs measured.

    Args:
        strategy: a `tfps.ParameterServerStrategy`.
        model: made and compiled in its scope.
        inputs: what to train on.
        config: epochs and batch size.
    """
    log = EpochLog(strategy)
    model.fit(
        inputs.x_train,
        inputs.y_train,
        batch_size=config.data.batch_size,
        epochs=config.training.epochs,
        validation_data=inputs.validation_data,
        callbacks=[log],
    )
    return TrainingRecord(log.epochs)
