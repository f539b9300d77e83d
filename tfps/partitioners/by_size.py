"""TensorFlow's three partitioners: shards of neighbouring rows, by their number or size.

Source: `tf.distribute.experimental.partitioners`, with the same names and numbers of shards.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfps.partitioners.counts import Counts
from tfps.partitioners.row_rule import Contiguous
from tfps.partitioners.sharding import Sharding
from tfps.partitioners.variable_spec import VariableSpec

# TensorFlow's default: below it, a message costs more than its bytes.
MIN_SHARD_BYTES = 256 << 10


@dataclass(frozen=True)
class FixedShardsPartitioner(Counts):
    """Divides every variable into the same number of shards; fewer if it has fewer rows.

    Use it if all variables are large. Source: TensorFlow's class of the same name.

    Args:
        num_shards: the number of shards.

    Raises:
        ConfigError: ``num_shards`` is not a whole number from 1.

    Example:

    >>> FixedShardsPartitioner(2).divide(VariableSpec("kernel", (784, 128)), servers=4).shapes
    ((392, 128), (392, 128))
    """

    num_shards: int

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        return _contiguous(variable, self.num_shards)


@dataclass(frozen=True)
class MinSizePartitioner(Counts):
    """Divides a variable into as many shards as possible, none smaller than a size.

    Use it to spread large variables over all servers. Source: TensorFlow's class of the same name.

    Args:
        min_shard_bytes: the smallest size of a shard in bytes; the number of shards is rounded up,
            so a shard may be a little smaller.
        max_shards: the most shards; None: the number of servers.

    Raises:
        ConfigError: a value is not a whole number from 1.

    Example:

    >>> partitioner = MinSizePartitioner(min_shard_bytes=100_000)
    >>> partitioner.divide(VariableSpec("kernel", (784, 128)), servers=2).shards
    2
    >>> partitioner.divide(VariableSpec("bias", (128,)), servers=2).shards
    1
    """

    min_shard_bytes: int = MIN_SHARD_BYTES
    max_shards: int | None = None

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        most = servers if self.max_shards is None else self.max_shards
        return _contiguous(variable, min(most, -(-variable.size_bytes // self.min_shard_bytes)))


@dataclass(frozen=True)
class MaxSizePartitioner(Counts):
    """Divides a variable into as few shards as possible, none larger than a size or one row.

    Use it if a variable is too large for a server or a message. Source: TensorFlow's class of the
    same name.

    Args:
        max_shard_bytes: the largest size of a shard in bytes.
        max_shards: the most shards, even if they are larger then; None: unlimited.

    Raises:
        ConfigError: a value is not a whole number from 1.

    Example:

    >>> partitioner = MaxSizePartitioner(max_shard_bytes=100_000)
    >>> partitioner.divide(VariableSpec("kernel", (784, 128)), servers=2).shards
    5
    """

    max_shard_bytes: int
    max_shards: int | None = None

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        rows_per_shard = max(1, self.max_shard_bytes // max(1, variable.row_bytes))
        shards = -(-variable.rows // rows_per_shard)
        return _contiguous(variable, min(shards, self.max_shards or shards))


def _contiguous(variable: VariableSpec, shards: int) -> Sharding:
    # A scalar has no axis to divide, and a variable without rows has one empty shard.
    most = variable.rows if variable.shape else 1
    return Sharding(variable, Contiguous(variable.rows, max(1, min(shards, most))))
