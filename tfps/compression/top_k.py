"""A codec that sends only the largest numbers, with their places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tfps.compression.late_tensorflow import tf
from tfps.errors import ConfigError

PAIR_BYTES = 8  # a place, int32, and a number, float32


def fraction_problem(fraction: Any) -> str | None:
    """Return why a fraction of numbers to send is invalid, or None if it is valid."""
    is_number = isinstance(fraction, (int, float)) and not isinstance(fraction, bool)
    if is_number and 0 < fraction <= 1:
        return None
    return f"fraction: received {fraction!r}, expected a number above 0, up to 1"


def count_sent_items(fraction: float, items: int) -> int:
    """Return how many of ``items`` numbers are sent."""
    # The small difference keeps a product that is whole but for rounding from being rounded up.
    return min(items, max(1, math.ceil(fraction * items - 1e-6)))


def encode_largest(vector: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """Encode the largest numbers of a vector, and their places; NaN counts as largest."""
    sizes = tf.where(tf.math.is_finite(vector), tf.abs(vector), float("inf"))
    places = tf.math.top_k(sizes, number, sorted=False).indices
    parts = [places, tf.bitcast(tf.gather(vector, places), tf.int32)]
    return tf.reshape(tf.bitcast(tf.concat(parts, 0), tf.uint8), [-1])


def decode_largest(data: tf.Tensor, items: int) -> tf.Tensor:
    """Decode a vector of ``items`` items from its largest numbers; the others are zeros."""
    numbers = tf.bitcast(tf.reshape(data, [-1, PAIR_BYTES // 2]), tf.int32)
    places, values = tf.split(numbers, 2)
    return tf.scatter_nd(places[:, None], tf.bitcast(values, tf.float32), [items])


@dataclass(frozen=True)
class TopK:
    """Sends only a gradient's largest items, in 8 bytes each; adds the rest to the next gradient.

    Use it for the largest savings, over very slow networks. Largest means in absolute value; NaN
    and infinity count as largest. The more workers, and the smaller the fraction, the later a
    gradient's small numbers arrive: begin with a lower learning rate.

    Source: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017;
    for the residual, Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018.

    Args:
        fraction: the fraction of a server's numbers that is sent, above 0, up to 1; at least one
            number is sent.

    Raises:
        ConfigError: the fraction is out of range.

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
        return encode_largest(vector, count_sent_items(self.fraction, vector.shape[0]))

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return decode_largest(data, items)

    def size_bytes(self, items: int) -> int:
        return PAIR_BYTES * count_sent_items(self.fraction, items)
