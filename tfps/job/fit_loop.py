"""The training of a job with Keras's `fit`, and the measurements of its epochs."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import keras

from tfps.config import JobConfig
from tfps.job.epochs import Epoch, TrainingRecord
from tfps.job.fault_tolerance import checkpoint_folder, goes_on_later
from tfps.job.inputs import Inputs
from tfps.job.named_job import first_epoch
from tfps.training.resume import Resume

if TYPE_CHECKING:
    from tfps.strategy.parameter_server import ParameterServerStrategy


class EpochLog(keras.callbacks.Callback):
    """Records the measurements of each epoch.

    Args:
        strategy: the strategy; its rate is the one that the progress bar shows.
    """

    def __init__(self, strategy: ParameterServerStrategy) -> None:
        super().__init__()
        self.epochs: list[Epoch] = []
        self._strategy, self._began_s = strategy, 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began_s = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        rate = self._strategy.run_state.step_rate("train", since_s=self._began_s)
        known = self.params["steps"]
        seen = 0 if rate is None else rate.steps
        self.epochs.append(
            Epoch(
                epoch=epoch + 1,
                steps=seen if known is None else known,
                seconds=time.monotonic() - self._began_s,
                steps_per_s=None if rate is None else rate.per_second,
                metrics={name: float(value) for name, value in (logs or {}).items()},
            )
        )

    def get_state(self) -> dict[str, Any]:
        return {"epochs": [asdict(epoch) for epoch in self.epochs]}

    def set_state(self, state: dict[str, Any]) -> None:
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]


def train_with_fit(
    strategy: ParameterServerStrategy, model: Any, inputs: Inputs, config: JobConfig
) -> TrainingRecord:
    """Train a compiled model; returns the measurements of its epochs.

    Args:
        strategy: a `tfps.ParameterServerStrategy`.
        model: a model that was made and compiled in its scope.
        inputs: the data.
        config: the job's configuration: epochs and batch size.
    """
    log = EpochLog(strategy)
    epoch = 0
    if config.job.name is not None:  # the servers may have trained a part of it
        epoch = first_epoch(
            examples_seen=strategy.stats().examples_seen,
            epoch_examples=inputs.epoch_examples,
            epochs=config.training.epochs,
        )
        if epoch:
            print(f"job      {config.job.name} resumes at epoch {epoch + 1}", flush=True)
    callbacks: list[Any] = [log]
    if goes_on_later(config):
        every_steps = config.recovery.every_steps
        every_s = config.recovery.every_s if every_steps is None else None
        folder = checkpoint_folder(config)
        callbacks.append(Resume(folder, every_steps=every_steps, every_s=every_s))
    model.fit(
        **inputs.fit_arguments(config.data.batch_size),
        epochs=config.training.epochs,
        initial_epoch=epoch,
        callbacks=callbacks,
    )
    return TrainingRecord(log.epochs)
