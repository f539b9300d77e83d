"""Groups the rows of a table by the shards that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.shards import RowsByShard, get_row_rule, get_shards


class ShardRows(NamedTuple):
    """Some rows of a table in one shard."""

    server: int
    shard: Any  # as a Keras variable
    row_indices: tf.Tensor  # the indices in the shard

    @property
    def native(self) -> Any:
        """The shard's variable."""
        return self.shard._value


class DistinctRows(NamedTuple):
    """Rows of a table that were looked up, each once.

    Rows of a shard follow each other, one shard after the other. So they come from servers and go
    there without a sort.
    """

    requested_ids: tf.Tensor  # the ids as they were given
    positions: tf.Tensor  # the indices of the given ids among these rows, int32
    parts: Sequence[ShardRows]  # by shard

    @classmethod
    def from_ids(cls, table: Any, ids: tf.Tensor, *, devices: Sequence[str]) -> DistinctRows:
        """Find the rows that ids name.

        Args:
            table: a Keras variable.
            ids: an int64 vector.
            devices: the servers' devices, in their order.
        """
        shards = get_shards(table)
        servers = [devices.index(shard._value.device) for shard in shards]
        distinct, positions = tf.unique(ids)
        divided = RowsByShard.from_rows(get_row_rule(table), distinct)
        if len(shards) > 1:
            order = tf.concat(divided.positions, 0)
            positions = tf.gather(tf.math.invert_permutation(order), positions)
        return cls(ids, positions, list(map(ShardRows, servers, shards, divided.row_indices)))

    @property
    def count(self) -> tf.Tensor:
        """The number of rows, int32."""
        return tf.add_n([tf.size(part.row_indices) for part in self.parts])
