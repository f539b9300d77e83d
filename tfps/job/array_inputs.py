"""Images and labels in memory, split into training, validation and test data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfps.errors import DataError


@dataclass(frozen=True)
class ArrayInputs:
    """The images and labels for training, validation and test.

    Args:
        x_train: the training images.
        y_train: their labels.
        x_validation: the validation images, held out for the curves; may be empty.
        y_validation: their labels.
        x_test: the images of the final test.
        y_test: their labels.
        source: the origin of the data, for messages.
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
        """The ``validation_data`` argument of `fit`; None if nothing was held out."""
        return (self.x_validation, self.y_validation) if len(self.y_validation) else None

    @property
    def epoch_examples(self) -> int:
        """The number of training images."""
        return len(self.y_train)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of batches of an epoch."""
        return math.ceil(self.epoch_examples / batch_size)

    def fit_arguments(self, batch_size: int) -> dict[str, Any]:
        """Return keyword arguments of `fit`."""
        return {
            "x": self.x_train,
            "y": self.y_train,
            "batch_size": batch_size,
            "validation_data": self.validation_data,
        }

    def sizes(self) -> str:
        """Return a text with the numbers of images."""
        counts = (len(self.y_train), len(self.y_validation), len(self.y_test))
        return "{:,} training, {:,} validation and {:,} test images".format(*counts)


def split_off_validation(data: Any, *, validation_fraction: float) -> ArrayInputs:
    """Hold out the last part of the training images for validation.

    Args:
        data: the result of an example's ``load_images``.
        validation_fraction: the fraction of the training images to hold out.

    Raises:
        DataError: no image is left to train on.
    """
    held_out = round(len(data.y_train) * validation_fraction)
    kept = len(data.y_train) - held_out
    if not kept:
        raise DataError(
            f"data.validation_fraction: received {validation_fraction}, expected a fraction that "
            f"leaves images to train on; lower it or add data ({len(data.y_train)} images now)"
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
