"""Two thin matrices in the place of a large one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tfps.compression.codec import ITEM_BYTES, Codec
from tfps.compression.identity import Identity
from tfps.compression.late_tensorflow import tf
from tfps.compression.memory import Kept, Remembered
from tfps.errors import ConfigError


@dataclass(frozen=True)
class PowerSGD:
    """Of each matrix two thin factors go, whose product is close to it; vectors go as they are.

    For large kernels: a matrix of m rows and n columns becomes ``rank * (m + n)`` numbers. The last
    axis of a variable is that of its columns, so a convolution is a matrix too. A worker finds the
    factors by one step of the power method, and begins with those of its gradient before. It keeps
    what is left out, and adds it to the next gradient. A matrix that would not become smaller goes
    as it is. One with NaN or infinity arrives as NaN.

    Source: Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
    Distributed Optimization", NeurIPS 2019; there workers have the factors of their mean, here each
    has its own.

    Args:
        rank: columns of each factor, 1 or more.

    Raises:
        ConfigError: another rank.

    Example:

    >>> PowerSGD(2).for_shape((784, 128)).size_bytes(784 * 128)
    7296
    """

    rank: int = 2

    is_unbiased: ClassVar[bool] = False
    is_reproducible: ClassVar[bool] = False  # machines round products of matrices differently

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise ConfigError(
                f"rank: received {self.rank!r}, expected a whole number from 1", source="PowerSGD"
            )

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return Identity().encode(vector, seed=seed)

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return Identity().decode(data, items)

    def size_bytes(self, items: int) -> int:
        return Identity().size_bytes(items)

    def for_shape(self, shape: Sequence[int]) -> Codec:
        """The codec of one variable.

        Args:
            shape: of the variable, or of its shard.
        """
        rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
        if len(shape) < 2 or self.rank * (rows + columns) >= rows * columns:
            return Identity()
        return Matrix(self.rank, rows, columns)


@dataclass(frozen=True, repr=False)
class Matrix:
    """The codec of one matrix, for `PowerSGD`.

    Args:
        rank: columns of each factor.
        rows: of the matrix.
        columns: of the matrix.
    """

    rank: int
    rows: int
    columns: int

    is_unbiased: ClassVar[bool] = False
    takes_one: ClassVar[bool] = True  # variable, which shares no vector with others

    def __repr__(self) -> str:
        return repr(PowerSGD(self.rank))

    @property
    def memory(self) -> WarmStart:
        return WarmStart(self)

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return self.pack(*self.factors(vector, self.draw(seed)))

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        numbers = tf.bitcast(tf.reshape(data, [-1, ITEM_BYTES]), tf.float32)
        left, right = tf.split(numbers, [self.rows * self.rank, self.columns * self.rank])
        return self.product(
            tf.reshape(left, [self.rows, self.rank]),
            tf.reshape(right, [self.columns, self.rank]),
            items,
        )

    def size_bytes(self, items: int) -> int:
        return ITEM_BYTES * self.rank * (self.rows + self.columns)

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """A right factor to begin with."""
        return tf.random.stateless_normal([self.columns, self.rank], seed)

    def factors(self, vector: tf.Tensor, right: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The factors of a matrix: the left one has orthogonal columns of length 1.

        Args:
            vector: its rows one after the other, filled up with zeros perhaps.
            right: of a matrix that is like it.
        """
        matrix = tf.reshape(vector[: self.rows * self.columns], [self.rows, self.columns])
        left, _ = tf.linalg.qr(tf.matmul(matrix, right))
        lost = 0 * tf.reduce_sum(matrix)  # NaN where anything is not finite
        return left, tf.matmul(matrix, left, transpose_a=True) + lost

    def product(self, left: tf.Tensor, right: tf.Tensor, items: int) -> tf.Tensor:
        """The vector of so many items that factors stand for."""
        matrix = tf.reshape(tf.matmul(left, right, transpose_b=True), [-1])
        return tf.pad(matrix, [[0, items - self.rows * self.columns]])

    def pack(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """The bytes of factors."""
        numbers = tf.concat([tf.reshape(left, [-1]), tf.reshape(right, [-1])], 0)
        return tf.reshape(tf.bitcast(numbers, tf.uint8), [-1])


@dataclass(frozen=True)
class WarmStart:
    """What is left out of a matrix, and the right factor with which the next step begins.

    Args:
        codec: of the matrix.
    """

    codec: Matrix

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        right = tf.TensorSpec([self.codec.columns, self.codec.rank], tf.float32)
        return (tf.TensorSpec([items], tf.float32), right)

    def code(self, vector: tf.Tensor, kept: Kept, *, scale: Any, seed: tf.Tensor) -> Remembered:
        codec, (residual, right) = self.codec, kept
        whole = vector + residual * scale
        # From zeros, of a new worker or of a gradient without numbers, nothing would come.
        right = tf.where(tf.reduce_any(right != 0), right, codec.draw(seed))
        left, right = codec.factors(whole, right)
        arrived = codec.product(left, right, vector.shape[0])
        return Remembered(codec.pack(left, right), ((whole - arrived) / scale, right))
