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
        sizes = tf.where(tf.math.is_finite(vector), tf.abs(vector), float("inf"))
        places = tf.math.top_k(sizes, self._chosen(vector.shape[0]), sorted=False).indices
        parts = [places, tf.bitcast(tf.gather(vector, places), tf.int32)]
        return tf.reshape(tf.bitcast(tf.concat(parts, 0), tf.uint8), [-1])

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        numbers = tf.bitcast(tf.reshape(data, [-1, PAIR_BYTES // 2]), tf.int32)
        places, values = tf.split(numbers, 2)
        return tf.scatter_nd(places[:, None], tf.bitcast(values, tf.float32), [items])

    def size_bytes(self, items: int) -> int:
        return PAIR_BYTES * self._chosen(items)

    def _chosen(self, items: int) -> int:
        # A product that is whole but for its rounding is not to be rounded up.
        return min(items, max(1, math.ceil(self.fraction * items - 1e-6)))
