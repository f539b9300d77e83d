"""The interface of a job's data for training, validation and test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Inputs(Protocol):
    """The data of a job, behind the interface that all workloads share."""

    @property
    def source(self) -> str:
        """The origin of the data, for messages."""

    @property
    def epoch_examples(self) -> int | None:
        """The number of examples of an epoch; None if it is not known beforehand."""

    def sizes(self) -> str:
        """Return a text with the numbers of examples."""

    def steps_per_epoch(self, batch_size: int) -> int | None:
        """Return the number of batches of an epoch; None if it is not known beforehand.

        Args:
            batch_size: the number of examples of a batch.
        """

    def fit_arguments(self, batch_size: int) -> Mapping[str, Any]:
        """Return keyword arguments of `fit`: the data, the validation data, and sizes.

        Args:
            batch_size: the number of examples of a batch.
        """
