"""Categorical features over embedding tables: what is trained by `python -m benchmarks embedding`.

There are 26 features, as in Criteo's clicks, each with rows of its own. They lie in one table, in
26 or in any number between, so that every number of tables has the same rows, and a step asks for
the same of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tfps
from benchmarks.examples import Examples

FEATURES = 26
WIDTH = 16
ROW_BYTES = 4 * WIDTH  # float32
BATCHES = 60  # different ones, which are shuffled
LEARNING_RATE = 0.05
# How often an id is asked for, by its number: as words are, and most other things.
EXPONENT = 1.05
IDS = {"uniform": "uniform ids", "power_law": "power-law ids"}


@dataclass(frozen=True)
class TableModel:
    """A model that looks up rows and computes almost nothing else.

    Args:
        tables: how many, at most one for each feature.
        rows: of each feature.
    """

    tables: int
    rows: int

    @property
    def features_of_tables(self) -> list[range]:
        """Neighbouring features, about as many in each table."""
        ends = [FEATURES * table // self.tables for table in range(self.tables + 1)]
        return list(map(range, ends, ends[1:]))

    def build(self, keras: Any) -> Any:
        """Make it, not compiled, with `keras` or `tf_keras`."""
        layers = keras.layers
        inputs = keras.Input((FEATURES,), dtype="int32")
        found = [
            layers.Embedding(len(features) * self.rows, WIDTH)(
                inputs[:, features.start : features.stop]
            )
            for features in self.features_of_tables
        ]
        rows = found[0] if len(found) == 1 else layers.Concatenate(axis=1)(found)
        return keras.Model(inputs, layers.Dense(1)(layers.Flatten()(rows)))

    def loss_and_accuracy(self, keras: Any, **options: Any) -> tuple[Any, Any]:
        """Return the loss and the accuracy for the model's logits; options go to the loss."""
        loss = keras.losses.BinaryCrossentropy(from_logits=True, **options)
        return loss, keras.metrics.BinaryAccuracy()

    def optimizer(self, keras: Any) -> Any:
        """Adagrad, whose update of some rows is that of all; tf_keras updates rows by itself."""
        adagrad = keras.optimizers.Adagrad(LEARNING_RATE)
        if keras.__name__ == "tf_keras":
            return adagrad
        return tfps.optimizers.SparseUpdates(adagrad)

    def examples(self, ids: str, *, batch_size: int) -> Examples:
        """Make batches of ids, one of `IDS`, and labels."""
        drawn = drawn_ids(ids, rows=self.rows, examples=BATCHES * batch_size)
        own = [len(features) for features in self.features_of_tables]
        begins = np.concatenate([self.rows * np.arange(count) for count in own])
        labels = np.random.default_rng(1).integers(0, 2, (len(drawn), 1)).astype(np.float32)
        return Examples((drawn + begins).astype(np.int32), labels, batch_size)


def drawn_ids(ids: str, *, rows: int, examples: int) -> np.ndarray[Any, Any]:
    """Draw the id of each feature within its rows; of a power law low ones come most."""
    random = np.random.default_rng(0)
    if ids == "uniform":
        return random.integers(0, rows, (examples, FEATURES))
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -EXPONENT
    bounds = np.cumsum(weights) / weights.sum()
    drawn = np.searchsorted(bounds, random.random((examples, FEATURES)), side="right")
    return np.minimum(drawn, rows - 1)  # the last bound may be a little below 1


def distinct_rows(examples: Examples, model: TableModel) -> float:
    """Count the rows that a step asks for, each once; the mean over its batches."""
    batches = examples.inputs.reshape(-1, examples.batch_size, FEATURES)
    columns = [batches[:, :, f.start : f.stop] for f in model.features_of_tables]
    counts = [len(np.unique(batch)) for table in columns for batch in table]
    return sum(counts) / len(batches)
