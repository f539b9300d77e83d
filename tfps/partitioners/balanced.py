"""A partitioner whose shards fill all servers alike, for variables of any sizes."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.partitioners.by_size import MIN_SHARD_BYTES
from tfps.partitioners.counts import Counts
from tfps.partitioners.row_rule import Contiguous, Modulo
from tfps.partitioners.sharding import Sharding
from tfps.partitioners.variable_spec import VariableSpec


@dataclass(frozen=True)
class Balanced(Counts):
    """Divides large variables into one shard for each server, and leaves the others whole.

    Use it if a few variables have most of the bytes. A divided variable adds the same bytes and
    traffic to all servers. Whole ones are small, and `LeastLoaded` spreads them evenly. So no
    server holds much more than the mean, the less so the more variables a model has. A table of
    which a step looks up some rows is divided like `Modulo`, others like `Contiguous`.

    Args:
        min_shard_bytes: the smallest size of a shard in bytes. Variables smaller than twice this
            size stay whole: another message would cost more than the balance gains.

    Raises:
        ConfigError: ``min_shard_bytes`` is not a whole number from 1.

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
