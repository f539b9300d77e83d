"""No compression, as a codec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfps.compression.codec import ITEM_BYTES
from tfps.compression.late_tensorflow import tf


@dataclass(frozen=True)
class Identity:
    """Sends numbers without compression; use it in a `ByPath`, or for one direction.

    Example:

    >>> Identity().size_bytes(1000)
    4000
    """

    is_unbiased: ClassVar[bool] = True

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.bitcast(vector, tf.uint8), [-1])

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return tf.bitcast(tf.reshape(data, [items, ITEM_BYTES]), tf.float32)

    def size_bytes(self, items: int) -> int:
        return ITEM_BYTES * items
