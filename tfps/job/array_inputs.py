"""Images and labels in memory, split into what is trained on, validated with and tested with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfps.errors import DataError


@dataclass(frozen=True)
class ArrayInputs:
    """Images and labels of the three parts.

    Args:
        x_train: images to train on.
        y_train: their labels.
        x_validation: images held out for the curves; may be empty.
        y_validation: their labels.
        x_test: images of the final test, looked at once.
        y_test: their labels.
        source: where the data come from, in words.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    source: str

    @property
    def validation_data(self) -> tuple[np.ndarray, np.ndarray] | None:
        """As `fit` takes it; None where nothing was held out."""
        return (self.x_validation, self.y_validation) if len(self.y_validation) else None

    @property
    def epoch_examples(self) -> int:
        """How many images are trained on."""
        return len(self.y_train)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return how many batches hold every training example once."""
        return math.ceil(self.epoch_examples / batch_size)

    def fit_arguments(self, batch_size: int) -> dict[str, Any]:
        """Return what `fit` takes."""
        return {
            "x": self.x_train,
            "y": self.y_train,
            "batch_size": batch_size,
            "validation_data": self.validation_data,
        }

    def sizes(self) -> str:
        """Return the numbers of images, for people."""
        counts = (len(self.y_train), len(self.y_validation), len(self.y_test))
        return "{:,} training, {:,} validation and {:,} test images".format(*counts)


def split(data: Any, *, validation_fraction: float) -> ArrayInputs:
    """Hold out the last part of the training images for validation.

    Args:
        data: what an example's ``load`` returns.
        validation_fraction: how much of the training images is held out.

    Raises:
        DataError: nothing is left to train on.
    """
    held_out = round(len(data.y_train) * validation_fraction)
    kept = len(data.y_train) - held_out
    if not kept:
        raise DataError(
            f"data.validation_fraction: {validation_fraction} of {len(data.y_train)} training "
            "images leaves none to train on; expected a smaller fraction or more data"
        )
    return ArrayInputs(
        x_train=data.x_train[:kept],
        y_train=data.y_train[:kept],
        x_validation=data.x_train[kept:],
        y_validation=data.y_train[kept:],
        x_test=data.x_test,
        y_test=data.y_test,
        source=data.source,
    )
