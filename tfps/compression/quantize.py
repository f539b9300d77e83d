"""Numbers of a few bits, with a scale for each block of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfps.compression.late_tensorflow import tf
from tfps.errors import ConfigError

BITS = (8, 4, 2, 1)
SCALE_BYTES = 4


@dataclass(frozen=True)
class Quantize:
    """Numbers become levels of 8, 4, 2 or 1 bits between minus and plus their block's largest.

    With 8, 4 and 2 bits (255, 15 and 3 levels) a number goes to the level above or below it at
    random, so that what arrives is on average what was sent. With 1 bit the sign goes, and stands
    for the mean size of the block's numbers; the worker keeps what is left out, and adds it to the
    next gradient. A block with NaN arrives as NaN. Infinity arrives in its places, and what else is
    in its block as zeros; with 1 bit the whole block is infinite.

    Source: Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and
    Encoding", NeurIPS 2017; for 2 bits, Wen et al., "TernGrad", NeurIPS 2017; for 1 bit, Seide et
    al., "1-Bit Stochastic Gradient Descent", Interspeech 2014.

    Args:
        bits: of a number: 8, 4, 2 or 1.
        block_items: numbers that share a scale of 4 bytes.

    Raises:
        ConfigError: other bits, or a block without items.

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
        if problems:
            raise ConfigError(problems, source="Quantize")

    @property
    def is_unbiased(self) -> bool:
        return self.bits > 1

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        items = vector.shape[0]
        blocks = tf.pad(vector, [[0, self._blocks(items) * self.block_items - items]])
        blocks = tf.reshape(blocks, [-1, self.block_items])
        scales = self._scales(blocks, items)
        if self.bits == 1:
            levels = tf.cast(blocks >= 0, tf.uint8)
        else:
            ratio = tf.math.divide_no_nan(blocks, scales[:, None])
            ratio = tf.where(tf.math.is_inf(blocks), tf.sign(blocks), ratio)
            chance = tf.random.stateless_uniform(blocks.shape, seed)
            level = tf.floor(ratio * self._largest + self._largest + chance)
            level = tf.where(tf.math.is_nan(level), 0.0, level)
            levels = tf.cast(tf.clip_by_value(level, 0, 2 * self._largest), tf.uint8)
        levels = tf.reshape(levels, [-1])[:items]
        scale_bytes = tf.reshape(tf.bitcast(scales, tf.uint8), [-1])
        data = tf.concat([scale_bytes, self._packed(levels)], 0)
        return tf.ensure_shape(data, [self.size_bytes(items)])

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        scale_bytes = SCALE_BYTES * self._blocks(items)
        scales = tf.bitcast(tf.reshape(data[:scale_bytes], [-1, SCALE_BYTES]), tf.float32)
        levels = self._unpacked(data[scale_bytes:])[:items]
        levels = tf.pad(levels, [[0, self._blocks(items) * self.block_items - items]])
        levels = tf.cast(tf.reshape(levels, [-1, self.block_items]), tf.float32)
        if self.bits == 1:
            blocks = (2 * levels - 1) * scales[:, None]
        else:
            steps = levels - self._largest
            blocks = steps / self._largest * scales[:, None]
            is_lost = tf.logical_and(steps == 0, tf.math.is_inf(scales)[:, None])
            blocks = tf.where(is_lost, 0.0, blocks)
        return tf.reshape(blocks, [-1])[:items]

    def size_bytes(self, items: int) -> int:
        return SCALE_BYTES * self._blocks(items) + math.ceil(items * self.bits / 8)

    @property
    def _largest(self) -> int:
        """The largest level; there are as many below zero."""
        return int(2 ** (self.bits - 1) - 1)

    def _blocks(self, items: int) -> int:
        return math.ceil(items / self.block_items)

    def _scales(self, blocks: tf.Tensor, items: int) -> tf.Tensor:
        """What the highest level of each block stands for; with 1 bit the mean size."""
        sizes = tf.abs(blocks)
        if self.bits == 1:
            full, rest = divmod(items, self.block_items)
            counts = [self.block_items] * full + [rest] * (rest > 0)
            return tf.reduce_sum(sizes, 1) / tf.constant(counts, tf.float32)
        is_lost = tf.reduce_any(tf.math.is_nan(blocks), 1)
        return tf.where(is_lost, float("nan"), tf.reduce_max(sizes, 1))

    def _packed(self, levels: tf.Tensor) -> tf.Tensor:
        """Several levels in each byte, the first in its lowest bits."""
        together = 8 // self.bits
        filled = tf.pad(levels, [[0, -levels.shape[0] % together]])
        shifted = tf.bitwise.left_shift(tf.reshape(filled, [-1, together]), self._shifts)
        packed = shifted[:, 0]
        for place in range(1, together):
            packed = tf.bitwise.bitwise_or(packed, shifted[:, place])
        return packed

    def _unpacked(self, data: tf.Tensor) -> tf.Tensor:
        shifted = tf.bitwise.right_shift(data[:, None], self._shifts)
        mask = tf.constant(2**self.bits - 1, tf.uint8)
        return tf.reshape(tf.bitwise.bitwise_and(shifted, mask), [-1])

    @property
    def _shifts(self) -> tf.Tensor:
        return tf.constant([list(range(0, 8, self.bits))], tf.uint8)
