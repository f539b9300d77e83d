"""A planted click log: each example follows from its position, and the best possible AUC is known.

Everything is computed from hashes of (seed, position), on whichever worker needs the example; no
file is read and nothing is stored. The ids of a feature follow a power law: an id's rank is its
number, so that row 0 is the most frequent one of a table. Whether a user clicks is drawn with a
probability that has

- a hidden weight for each id of each feature,
- a product of two hidden weights for some pairs of features,
- a sum over the numbers, and one product of two of them.

The hidden weights are hashes of the id, so 20 million of them take no memory. Labels are drawn, so
no model separates them perfectly: the planted probabilities themselves reach the best AUC that is
possible, which `recommender.best_auc` computes.

Source of the hash: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
2014 (splitmix64).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from recommender.settings import CATEGORIES, NUMBERS

# Pairs of features whose weights multiply: large tables with small ones, and among each other.
PAIRS = ((2, 0), (11, 6), (20, 13), (15, 9), (3, 23), (5, 22))
# Standard deviations of the parts of the logit, and its mean: every fourth example is a click.
BY_IDS, BY_PAIRS, BY_NUMBERS, BY_PRODUCT, MEAN = 1.2, 0.7, 0.6, 0.4, -1.4

GOLDEN = 0x9E3779B97F4A7C15
STREAMS = 0xD1B54A32D192ED03
HIDDEN = 0x8CB92BA72F3D8DD7
UNIT_BITS, FIELD_BITS = 53, 21
SPREAD = 12**0.5  # a uniform number of this range has a variance of 1


def mix(x: tf.Tensor) -> tf.Tensor:
    """Give a hash of each 64-bit number, a permutation of them."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _word(shift))) * _word(factor)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _word(31)))


@dataclass(frozen=True)
class ClickLog:
    """A log without end, the same for the same arguments.

    Args:
        seed: another one is another log.
        table_rows: how many ids each of the 26 features has.
        exponent: of the power law, above 1: the id of rank r is about r^-exponent as frequent as
            the first one.

    Example:

    >>> log = ClickLog(seed=0, table_rows=[100] * 26, exponent=1.2)
    >>> features, labels = log.examples(tf.range(4, dtype=tf.int64))
    >>> features["ids"].shape, features["numbers"].shape, labels.shape
    (TensorShape([4, 26]), TensorShape([4, 13]), TensorShape([4]))
    """

    seed: int
    table_rows: Sequence[int]
    exponent: float

    def examples(self, positions: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Return the features and labels at some positions.

        Args:
            positions: int64, of any order and number.
        """
        dense, ids = self._features(positions)
        clicks = self._uniform(positions, [NUMBERS + CATEGORIES])[:, 0]
        labels = tf.cast(clicks < self._probabilities(dense, ids), tf.float32)
        features = {"numbers": tf.cast(dense, tf.float32), "ids": tf.cast(ids, tf.int32)}
        return features, labels

    def probabilities(self, positions: tf.Tensor) -> tf.Tensor:
        """Return with which probability each label is 1, as planted."""
        return self._probabilities(*self._features(positions))

    def _features(self, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        uniform = self._uniform(positions, range(NUMBERS + CATEGORIES))
        dense = (uniform[:, :NUMBERS] - 0.5) * SPREAD
        return dense, self._ids(uniform[:, NUMBERS:])

    def _ids(self, uniform: tf.Tensor) -> tf.Tensor:
        """By the inverse of the distribution: a Pareto distribution that ends at the last row."""
        rows = np.asarray(self.table_rows, np.float64)
        power = 1.0 - self.exponent
        rank = (1.0 + uniform * ((rows + 1.0) ** power - 1.0)) ** (1.0 / power)
        # Rounding may reach the end of the range.
        return tf.minimum(tf.cast(rank, tf.int64) - 1, np.asarray(self.table_rows, np.int64) - 1)

    def _probabilities(self, dense: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        weights, factors = self.hidden(ids)
        pairs = tf.gather(factors, [one for one, _ in PAIRS], axis=1) * tf.gather(
            factors, [other for _, other in PAIRS], axis=1
        )
        signs = np.where(np.arange(NUMBERS) % 2, -1.0, 1.0)
        logit = (
            MEAN
            + BY_IDS / CATEGORIES**0.5 * tf.reduce_sum(weights, axis=1)
            + BY_PAIRS / len(PAIRS) ** 0.5 * tf.reduce_sum(pairs, axis=1)
            + BY_NUMBERS / NUMBERS**0.5 * tf.reduce_sum(dense * signs, axis=1)
            + BY_PRODUCT * dense[:, 0] * dense[:, 1]
        )
        return tf.sigmoid(logit)

    def hidden(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Two numbers for each id, of mean 0 and variance 1: its weight and its factor in pairs."""
        features = np.arange(1, CATEGORIES + 1, dtype=np.uint64) * np.uint64(HIDDEN)
        bits = mix(mix(tf.cast(ids, tf.uint64) + features) + _word(self.seed))
        mask = _word((1 << FIELD_BITS) - 1)

        def field(shift: int) -> tf.Tensor:
            part = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, _word(shift)), mask)
            return (tf.cast(part, tf.float64) / (1 << FIELD_BITS) - 0.5) * SPREAD

        return field(0), field(FIELD_BITS)

    def _uniform(self, positions: tf.Tensor, streams: Sequence[int]) -> tf.Tensor:
        """Numbers from 0 to 1 of a position, one for each stream: float64, below 1."""
        first = mix(tf.cast(positions, tf.uint64) + _word(self.seed * GOLDEN))
        numbers = np.asarray([(n + 1) * STREAMS % (1 << 64) for n in streams], np.uint64)
        bits = tf.bitwise.right_shift(mix(first[:, None] + numbers), _word(64 - UNIT_BITS))
        return tf.cast(bits, tf.float64) / (1 << UNIT_BITS)


def _word(value: int) -> Any:
    return tf.constant(value % (1 << 64), tf.uint64)
