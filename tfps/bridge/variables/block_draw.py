"""Draws the initial values of variables that are too large for one machine, block by block.

A block is a fixed number of neighbouring rows. Its values depend only on the initializer's seed and
the number of the block, not on how the variable is sharded. They differ from the values that Keras
draws for the variable as a whole.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_private import compute_fans, get_fan_axes
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.partitioners.row_rule import Contiguous, RowRule, rows_per_shard

# Besides its shard a server holds one block and the rows that it takes from it.
BLOCK_BYTES = 16 << 20

CONSTANT_INITIALIZERS = (
    keras.initializers.Zeros,
    keras.initializers.Ones,
    keras.initializers.Constant,
)
ELEMENTWISE_INITIALIZERS = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
)


def can_draw_blocks(initializer: Any) -> bool:
    """Return whether an initializer can draw some rows of a variable without the others.

    Example:

    >>> can_draw_blocks(keras.initializers.GlorotUniform())
    True
    >>> can_draw_blocks(keras.initializers.Orthogonal())
    False
    """
    kind = type(initializer)
    is_scaling = isinstance(initializer, keras.initializers.VarianceScaling) and (
        kind.__call__ is keras.initializers.VarianceScaling.__call__
    )
    return kind in CONSTANT_INITIALIZERS or kind in ELEMENTWISE_INITIALIZERS or is_scaling


@dataclass(frozen=True)
class BlockDraw:
    """Draws the initial value of a variable in blocks.

    Args:
        initializer: an initializer that `can_draw_blocks` accepts.
        seed: the seed of the variable (see `take_seed`).
        shape: the shape of the variable.
        dtype: the dtype of the variable.
        block_bytes: the size of a block, which has at least one row.
    """

    initializer: Any
    seed: str
    shape: tuple[int, ...]
    dtype: str
    block_bytes: int = BLOCK_BYTES

    @property
    def rows_per_block(self) -> int:
        row_bytes = math.prod(self.shape[1:]) * tf.as_dtype(self.dtype).size
        return max(1, self.block_bytes // max(1, row_bytes))

    @property
    def _has_equal_rows(self) -> bool:
        """Whether all rows have the same values."""
        return type(self.initializer) in CONSTANT_INITIALIZERS and self._constant_rows is None

    @functools.cached_property
    def _constant_rows(self) -> np.ndarray | None:
        """The rows of a constant initializer, such as a pretrained table; None for other ones."""
        if type(self.initializer) is not keras.initializers.Constant:
            return None
        value = np.asarray(self.initializer.value)
        says_rows = value.ndim == len(self.shape) and value.shape[0] == self.shape[0] > 1
        return value if says_rows else None

    def begin(self, rows: int) -> tf.Tensor:
        """Return the value with which a shard is created on its server; `fill` replaces it."""
        shape = (rows, *self.shape[1:])
        if (
            type(self.initializer) is keras.initializers.Constant
            and np.ndim(self.initializer.value) == 0
        ):
            # Not with Keras, which multiplies ones: that takes the memory of the shard twice.
            return tf.fill(shape, tf.cast(self.initializer.value, self.dtype))
        if self._has_equal_rows:
            return self.initializer(shape, dtype=self.dtype)
        return tf.zeros(shape, self.dtype)

    def fill(self, native: ServerVariable, *, rule: RowRule, shard: int) -> None:
        """Draw a shard's rows of every block on its server; no values go over the network.

        Args:
            native: the shard.
            rule: the rule by which the variable is sharded.
            shard: the number of the shard.
        """
        if self._has_equal_rows:
            return
        for begin in range(0, self.shape[0], self.rows_per_block):
            length = min(self.rows_per_block, self.shape[0] - begin)
            if isinstance(rule, Contiguous):
                first = rule.begin_of(shard)
                if begin + length <= first or begin >= first + rows_per_shard(rule)[shard]:
                    continue
            with tf.init_scope(), private.placed_on(native.device):
                rows = tf.range(begin, begin + length, dtype=tf.int64)
                is_here = tf.equal(rule.shard_of(rows), shard)
                tf.raw_ops.ResourceScatterUpdate(
                    resource=native.handle,
                    indices=tf.boolean_mask(rule.place_of(rows), is_here),
                    updates=tf.boolean_mask(self._draw_block(begin, length), is_here),
                )

    def _draw_block(self, begin: int, length: int) -> tf.Tensor:
        if self._constant_rows is not None:
            given = tf.constant(self._constant_rows[begin : begin + length], self.dtype)
            return tf.broadcast_to(given, (length, *self.shape[1:]))
        # Draw a whole block, so that the last one's values do not depend on its length.
        shape = (self.rows_per_block, *self.shape[1:])
        text = f"{self.seed} {begin // self.rows_per_block}".encode()
        seed = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") >> 1
        drawn = self._make_block_initializer(shape, seed)
        return drawn(shape, dtype=self.dtype)[:length]

    def _make_block_initializer(self, shape: tuple[int, ...], seed: int) -> Any:
        """Return the initializer for a block, with its own seed and the variable's fans."""
        config = {**self.initializer.get_config(), "seed": seed}
        if type(self.initializer) in ELEMENTWISE_INITIALIZERS:
            return type(self.initializer)(**config)
        known = {name: getattr(self.initializer, name) for name in ("mode", "distribution")}
        known |= get_fan_axes(self.initializer)
        scale = self.initializer.scale * self._compute_fan(shape) / self._compute_fan(self.shape)
        return keras.initializers.VarianceScaling(scale=scale, seed=seed, **known)

    def _compute_fan(self, shape: tuple[int, ...]) -> float:
        """Return the fan by which `VarianceScaling` divides."""
        rule = self.initializer
        fan_in, fan_out = compute_fans(shape, **get_fan_axes(rule))
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        return max(1.0, float(fans[rule.mode]))


def take_seed(initializer: Any) -> str:
    """Return the seed for the next variable of an initializer; advances a seed generator."""
    seed = getattr(initializer, "seed", 0)
    return str(seed if isinstance(seed, int) else seed.next().numpy().tolist())
