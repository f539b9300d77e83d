"""What a job trains, validates and tests with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Inputs(Protocol):
    """The data of one job, as the job sees them; its workload knows the rest."""

    @property
    def source(self) -> str:
        """Where the data come from, in words."""

    @property
    def epoch_examples(self) -> int | None:
        """How many examples an epoch has; None where nobody knows before."""

    def sizes(self) -> str:
        """How many examples there are, for people."""

    def steps_per_epoch(self, batch_size: int) -> int | None:
        """How many batches an epoch has; None where nobody knows before.

        Args:
            batch_size: examples of each.
        """

    def fit_arguments(self, batch_size: int) -> Mapping[str, Any]:
        """What `fit` takes: the data, the data to validate with, and sizes.

        Args:
            batch_size: examples of each batch.
        """
