"""What a recommender's job trains, validates and tests with: datasets that workers make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfps import Shards

Part = Callable[[Any], Any]  # from an InputContext to a dataset of batches


@dataclass(frozen=True)
class ShardInputs:
    """Three parts of the data, each in shards that workers go through.

    Args:
        source: where the data come from, in words.
        sizes_in_words: how many examples there are.
        training: makes the dataset of a shard of the part to train on.
        validation: of the part to validate with.
        test: of the part to test with.
        shards: how many each part comes in.
        steps: of an epoch; None where it ends with the data.
        epoch_examples: how many an epoch has; None where nobody knows before.
        best_auc: computes what no model can exceed on the test part; None where nobody knows.
        target_auc: what a run has to reach.
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
        """How many batches an epoch has; None where nobody knows before."""
        return self.steps

    def fit_arguments(self, batch_size: int) -> dict[str, Any]:
        """What `fit` takes."""
        from tfps import Shards

        return {
            "x": Shards(self.training, number=self.shards),
            "steps_per_epoch": self.steps,
            "validation_data": Shards(self.validation, number=self.shards),
        }

    def test_data(self) -> Shards:
        """What `evaluate` takes at the end."""
        from tfps import Shards

        return Shards(self.test, number=self.shards)
