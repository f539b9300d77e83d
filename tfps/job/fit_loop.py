"""`training.loop = "fit"`: the job through Keras's own `fit`."""

from __future__ import annotations

from typing import Any

from tfps.config import JobConfig
from tfps.job.curves import Curves
from tfps.job.inputs import Inputs


def train_with_fit(model: Any, inputs: Inputs, config: JobConfig) -> Curves:
    """Train a compiled model and return its curves.

    Args:
        model: made and compiled in the strategy's scope.
        inputs: what to train on.
        config: epochs and batch size.
    """
    history = model.fit(
        inputs.x_train,
        inputs.y_train,
        batch_size=config.data.batch_size,
        epochs=config.training.epochs,
        validation_data=inputs.validation_data,
    )
    return Curves.from_history(history.history)
