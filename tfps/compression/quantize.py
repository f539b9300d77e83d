"""A codec that sends numbers of a few bits, with a scale for each block of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfps.compression.late_tensorflow import tf
from tfps.errors import refuse

BITS = (8, 4, 2, 1)
SCALE_BYTES = 4


@dataclass(frozen=True)
class Quantize:
    """Rounds numbers to levels of 8, 4, 2 or 1 bits, with a scale for each block of numbers.

    Use it if `Cast` is not small enough, for example over a slow network. With 8, 4 and 2 bits
    (255, 15 and 3 levels) a number is rounded to the level above or below it at random, so that it
    arrives unchanged on average. With 1 bit only the sign is sent, and stands for the mean size of
    the block's numbers; the worker keeps the error and adds it to the next gradient. A block with
    NaN arrives as NaN. A block with infinity arrives with infinity in these places and zeros
    elsewhere; with 1 bit the whole block is infinite.

    Source: Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and
    Encoding", NeurIPS 2017; for 2 bits, Wen et al., "TernGrad", NeurIPS 2017; for 1 bit, Seide et
    al., "1-Bit Stochastic Gradient Descent", Interspeech 2014.

    Args:
        bits: the bits of a number: 8, 4, 2 or 1.
        block_items: the number of consecutive items, a block, that share a scale of 4 bytes.

    Raises:
        ConfigError: the number of bits is another one, or a block has no items.

    Example:

    >>> [Quantize(bits).size_bytes(2560) for bits in (8, 4, 2, 1)]
    [2600, 1320, 680, 360]
    """

    bits: int = 8
    block_items: int = 256

    def __post_init__(self) -> None:
        problems = []
        if self.bits not in BITS or isinstance(self.bits, bool):
            problems.append(f"bits: received {self.bits!r}, expected 8, 4, 2 or 1")
        if not isinstance(self.block_items, int) or self.block_items < 1:
            problems.append(f"block_items: received {self.block_items!r}, expected 1 or more")
        refuse(problems, source="Quantize")

    @property
    def is_unbiased(self) -> bool:
        return self.bits > 1

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return tf.reshape(self.encode_rows(vector[None], seed=seed), [-1])

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return tf.reshape(self.decode_rows(data[None], items), [items])

    def encode_rows(self, rows: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        items = rows.shape[1]
        blocks = self._to_blocks(rows, items)
        scales = self._scales(blocks, items)
        if self.bits == 1:
            levels = tf.cast(blocks >= 0, tf.uint8)
        else:
            ratio = tf.math.divide_no_nan(blocks, scales[..., None])
            ratio = tf.where(tf.math.is_inf(blocks), tf.sign(blocks), ratio)
            chance = tf.random.stateless_uniform(tf.shape(blocks), seed)
            level = tf.floor(ratio * self._largest_level + self._largest_level + chance)
            level = tf.where(tf.math.is_nan(level), 0.0, level)
            levels = tf.cast(tf.clip_by_value(level, 0, 2 * self._largest_level), tf.uint8)
        scale_bytes = SCALE_BYTES * self._count_blocks(items)
        scales = tf.reshape(tf.bitcast(scales, tf.uint8), [tf.shape(rows)[0], scale_bytes])
        data = tf.concat([scales, self._pack(self._to_rows(levels, items))], 1)
        return tf.ensure_shape(data, [rows.shape[0], self.size_bytes(items)])

    def decode_rows(self, data: tf.Tensor, items: int) -> tf.Tensor:
        scale_bytes, number = SCALE_BYTES * self._count_blocks(items), tf.shape(data)[0]
        scales = tf.reshape(data[:, :scale_bytes], [number, self._count_blocks(items), SCALE_BYTES])
        scales = tf.bitcast(scales, tf.float32)[..., None]
        levels = self._unpack(data[:, scale_bytes:], items)
        levels = tf.cast(self._to_blocks(levels, items), tf.float32)
        if self.bits == 1:
            blocks = (2 * levels - 1) * scales
        else:
            steps = levels - self._largest_level
            blocks = steps / self._largest_level * scales
            is_lost = tf.logical_and(steps == 0, tf.math.is_inf(scales))
            blocks = tf.where(is_lost, 0.0, blocks)
        return self._to_rows(blocks, items)

    def size_bytes(self, items: int) -> int:
        return SCALE_BYTES * self._count_blocks(items) + math.ceil(items * self.bits / 8)

    @property
    def _largest_level(self) -> int:
        """The largest level; the smallest is its negative."""
        return int(2 ** (self.bits - 1) - 1)

    def _count_blocks(self, items: int) -> int:
        return math.ceil(items / self.block_items)

    def _block_width(self, items: int) -> int:
        """Return the number of items of a block, at most those of a row."""
        return min(self.block_items, max(1, items))

    def _to_blocks(self, rows: tf.Tensor, items: int) -> tf.Tensor:
        """Reshape each row to blocks, padded with zeros."""
        blocks, width = self._count_blocks(items), self._block_width(items)
        filled = tf.pad(rows, [[0, 0], [0, blocks * width - items]])
        return tf.reshape(filled, [tf.shape(rows)[0], blocks, width])

    def _to_rows(self, blocks: tf.Tensor, items: int) -> tf.Tensor:
        """Reshape blocks to rows, without the padding."""
        filled = [tf.shape(blocks)[0], self._count_blocks(items) * self._block_width(items)]
        return tf.reshape(blocks, filled)[:, :items]

    def _scales(self, blocks: tf.Tensor, items: int) -> tf.Tensor:
        """Return the value of each block's highest level, or with 1 bit the mean magnitude."""
        sizes = tf.abs(blocks)
        if self.bits == 1:
            full, rest = divmod(items, self.block_items)
            counts = [self.block_items] * full + [rest] * (rest > 0)
            return tf.reduce_sum(sizes, 2) / tf.constant(counts, tf.float32)
        is_lost = tf.reduce_any(tf.math.is_nan(blocks), 2)
        return tf.where(is_lost, float("nan"), tf.reduce_max(sizes, 2))

    def _pack(self, levels: tf.Tensor) -> tf.Tensor:
        """Pack several levels into each byte, the first into its lowest bits."""
        together, number = 8 // self.bits, tf.shape(levels)[0]
        filled = tf.pad(levels, [[0, 0], [0, -levels.shape[1] % together]])
        grouped = tf.reshape(filled, [number, filled.shape[1] // together, together])
        shifted = tf.bitwise.left_shift(grouped, self._bit_shifts)
        packed = shifted[..., 0]
        for place in range(1, together):
            packed = tf.bitwise.bitwise_or(packed, shifted[..., place])
        return packed

    def _unpack(self, data: tf.Tensor, items: int) -> tf.Tensor:
        shifted = tf.bitwise.right_shift(data[..., None], self._bit_shifts)
        levels = tf.bitwise.bitwise_and(shifted, tf.constant(2**self.bits - 1, tf.uint8))
        together = 8 // self.bits
        return tf.reshape(levels, [tf.shape(data)[0], math.ceil(items / together) * together])[
            :, :items
        ]

    @property
    def _bit_shifts(self) -> tf.Tensor:
        return tf.constant(list(range(0, 8, self.bits)), tf.uint8)
