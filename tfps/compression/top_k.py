"""The largest numbers, with their places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tfps.compression.late_tensorflow import tf
from tfps.errors import ConfigError

PAIR_BYTES = 8  # a place, int32, and a number, float32


def fraction_problem(fraction: Any) -> str | None:
    """What is wrong with a share of numbers to send; None if nothing is."""
    is_number = isinstance(fraction, (int, float)) and not isinstance(fraction, bool)
    if is_number and 0 < fraction <= 1:
        return None
    return f"fraction: received {fraction!r}, expected a number above 0, up to 1"


def chosen_items(fraction: float, items: int) -> int:
    """How many of so many numbers go."""
    # A product that is whole but for its rounding is not to be rounded up.
    return min(items, max(1, math.ceil(fraction * items - 1e-6)))


def largest_pairs(vector: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """The bytes of so many numbers of a vector, and of their places; NaN counts as largest."""
    sizes = tf.where(tf.math.is_finite(vector), tf.abs(vector), float("inf"))
    places = tf.math.top_k(sizes, number, sorted=False).indices
    parts = [places, tf.bitcast(tf.gather(vector, places), tf.int32)]
    return tf.reshape(tf.bitcast(tf.concat(parts, 0), tf.uint8), [-1])


def vector_of_pairs(data: tf.Tensor, items: int) -> tf.Tensor:
    """The vector of so many items that has these numbers, and zeros between them."""
    numbers = tf.bitcast(tf.reshape(data, [-1, PAIR_BYTES // 2]), tf.int32)
    places, values = tf.split(numbers, 2)
    return tf.scatter_nd(places[:, None], tf.bitcast(values, tf.float32), [items])


@dataclass(frozen=True)
class TopK:
    """The largest numbers go, in 8 bytes each; the worker keeps the others for later gradients.

    NaN and infinity count as largest. The more workers, and the smaller the fraction, the later a
    gradient's small numbers arrive: begin with a lower learning rate.

    Source: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017;
    for what is kept, Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018.

    Args:
        fraction: of a server's numbers that goes, above 0, up to 1; at least one number does.

    Raises:
        ConfigError: another fraction.

    Example:

    >>> TopK(0.01).size_bytes(10_000)
    800
    """

    fraction: float = 0.01

    is_unbiased: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if problem := fraction_problem(self.fraction):
            raise ConfigError(problem, source="TopK")

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return largest_pairs(vector, chosen_items(self.fraction, vector.shape[0]))

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return vector_of_pairs(data, items)

    def size_bytes(self, items: int) -> int:
        return PAIR_BYTES * chosen_items(self.fraction, items)
