"""A codec that rounds numbers to two bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tfps.compression.late_tensorflow import tf
from tfps.errors import ConfigError

SIZE_BYTES = 2
_POWER = 0x7F800000  # the exponent bits of a float32


class _Format(NamedTuple):
    """The spacing of the numbers of a dtype."""

    relative: float  # times the power of two below them
    least: float


_FORMATS = {"bfloat16": _Format(2.0**-7, 2.0**-126), "float16": _Format(2.0**-10, 2.0**-24)}


@dataclass(frozen=True)
class Cast:
    """Halves the bytes: rounds each number to a dtype of 16 bits.

    Use it first if the network limits the training: it changes the results least. It rounds up or
    down at random, so that a number arrives unchanged on average: the worker keeps no residual.
    Numbers that are too large become the largest of the dtype; NaN and infinity stay.

    Source: for the rounding, Gupta et al., "Deep Learning with Limited Numerical Precision", ICML
    2015.

    Args:
        dtype: ``"bfloat16"`` (the range of float32, a relative error below 1/128) or ``"float16"``
            (up to 65504, a relative error below 1/1024 from 0.00006 on).

    Raises:
        ConfigError: the dtype is another one.

    Example:

    >>> Cast("bfloat16").size_bytes(1000)
    2000
    """

    dtype: str = "bfloat16"

    is_unbiased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.dtype not in _FORMATS:
            expected = " or ".join(map(repr, _FORMATS))
            raise ConfigError(f"dtype: received {self.dtype!r}, expected {expected}", source="Cast")

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return tf.reshape(self.encode_rows(vector[None], seed=seed), [-1])

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return tf.reshape(self.decode_rows(data[None], items), [items])

    def encode_rows(self, rows: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        relative, least = _FORMATS[self.dtype]
        largest = tf.cast(tf.as_dtype(self.dtype).max, tf.float32)
        power = tf.bitcast(tf.bitwise.bitwise_and(tf.bitcast(rows, tf.int32), _POWER), tf.float32)
        spacing = tf.maximum(power * relative, least)
        chance = tf.random.stateless_uniform(tf.shape(rows), seed)
        rounded = tf.floor(rows / spacing + chance) * spacing
        rounded = tf.clip_by_value(rounded, -largest, largest)
        short = tf.cast(tf.where(tf.math.is_finite(rows), rounded, rows), self.dtype)
        return tf.reshape(tf.bitcast(short, tf.uint8), [-1, SIZE_BYTES * rows.shape[1]])

    def decode_rows(self, data: tf.Tensor, items: int) -> tf.Tensor:
        numbers = tf.reshape(data, [-1, items, SIZE_BYTES])
        return tf.cast(tf.bitcast(numbers, tf.as_dtype(self.dtype)), tf.float32)

    def size_bytes(self, items: int) -> int:
        return SIZE_BYTES * items
