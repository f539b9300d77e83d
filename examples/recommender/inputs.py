"""The data for training, validation and test of a recommender: datasets that workers make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfps import ShardedDataset

Part = Callable[[Any], Any]  # from an InputContext to a dataset of batches


@dataclass(frozen=True)
class ShardInputs:
    """The data for training, validation and test, each in shards that workers read.

    Args:
        source: a description of the data's origin.
        sizes_in_words: a description of the numbers of examples.
        training: makes the dataset of a shard of the training data.
        validation: makes the dataset of a shard of the validation data.
        test: makes the dataset of a shard of the test data.
        shards: the number of shards of each part.
        steps: the number of steps of an epoch; None if it ends with the data.
        epoch_examples: the number of examples of an epoch; None if it is unknown in advance.
        best_auc: returns the largest possible AUC on the test data; None if it is unknown.
        target_auc: the AUC that a run has to reach.
    """

    source: str
    sizes_in_words: str
    training: Part
    validation: Part
    test: Part
    shards: int
    steps: int | None
    epoch_examples: int | None = None
    best_auc: Callable[[], float] | None = None
    target_auc: float | None = None

    def sizes(self) -> str:
        """How many examples there are, for people."""
        return self.sizes_in_words

    def steps_per_epoch(self, batch_size: int) -> int | None:
        """Return the number of batches of an epoch; None if it is unknown in advance."""
        return self.steps

    def fit_arguments(self, batch_size: int) -> dict[str, Any]:
        """Return the arguments of `fit`."""
        from tfps import ShardedDataset

        return {
            "x": ShardedDataset(self.training, number=self.shards),
            "steps_per_epoch": self.steps,
            "validation_data": ShardedDataset(self.validation, number=self.shards),
        }

    def test_data(self) -> ShardedDataset:
        """Return the data of the last `evaluate`."""
        from tfps import ShardedDataset

        return ShardedDataset(self.test, number=self.shards)
