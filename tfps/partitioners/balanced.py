"""Shards that fill all servers alike, whatever the sizes of the variables."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.partitioners.by_size import MIN_SHARD_BYTES
from tfps.partitioners.counts import Counts
from tfps.partitioners.row_rule import Contiguous, Modulo
from tfps.partitioners.sharding import Sharding
from tfps.partitioners.variable_spec import VariableSpec


@dataclass(frozen=True)
class Balanced(Counts):
    """Divides what is large into one shard for each server, and leaves the rest whole.

    A variable of one shard for each server adds the same to all of them, bytes and traffic alike;
    what stays whole is small, and `LeastLoaded` evens it out. So no server holds much more than the
    mean, and the more there is of everything, the less. Tables of which a step asks for some rows
    only are divided row by row, since nobody knows which rows those are.

    Args:
        min_shard_bytes: what is smaller than two of these stays whole: below that a further message
            costs more than it evens out.

    Raises:
        ConfigError: no whole number from 1.

    Example:

    >>> Balanced().divide(VariableSpec("kernel", (4096, 1024)), servers=8).shards
    8
    >>> Balanced().divide(VariableSpec("bias", (1024,)), servers=8).shards
    1
    """

    min_shard_bytes: int = MIN_SHARD_BYTES

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        if not variable.shape or variable.size_bytes < 2 * self.min_shard_bytes:
            return Sharding.whole(variable)
        shards = min(servers, variable.rows, variable.size_bytes // self.min_shard_bytes)
        rule = Contiguous if variable.rows_per_step is None else Modulo
        return Sharding(variable, rule(variable.rows, max(1, shards)))
