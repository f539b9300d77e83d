"""The data of these tests: numbered examples, whose last batch is short."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tests.cluster.counting import numbered

EXAMPLES, BATCH, BATCHES = 100, 8, 13
X, LABELS = numbered(EXAMPLES)


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(BATCH)


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for begin in range(0, EXAMPLES, BATCH):
        yield X[begin : begin + BATCH], LABELS[begin : begin + BATCH]
