"""Groups the rows of a table by the shards that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.shards import OrderedRows, get_row_rule, get_shards


class ShardRows(NamedTuple):
    """Some rows of a table in one shard."""

    server: int
    shard: Any  # as a Keras variable
    row_indices: tf.Tensor  # the indices in the shard
    size: tf.Tensor  # how many, int64

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
    size: tf.Tensor  # the number of rows, int32

    @classmethod
    def from_ids(
        cls, tables: Sequence[Any], ids: Sequence[tf.Tensor], *, devices: Sequence[str]
    ) -> list[DistinctRows]:
        """Find the rows that the ids of each table name; tables of one row rule share operations.

        Args:
            tables: Keras variables.
            ids: an int64 vector for each.
            devices: the servers' devices, in their order.
        """
        unique, rules = [tf.unique(each) for each in ids], [get_row_rule(each) for each in tables]
        ordered: dict[int, OrderedRows] = {}
        for rule in dict.fromkeys(rules):
            numbers = [k for k, each in enumerate(rules) if each == rule]
            found = OrderedRows.from_requests(rule, [unique[k].y for k in numbers])
            ordered.update(zip(numbers, found, strict=True))
        distinct = []
        for table, own_ids, (rows, positions), order in zip(
            tables, ids, unique, (ordered[k] for k in range(len(tables))), strict=True
        ):
            shards = get_shards(table)
            if len(shards) > 1:
                positions = tf.gather(order.places, positions)
            parts = [
                ShardRows(devices.index(shard._value.device), shard, each, tf.size(each, tf.int64))
                for shard, each in zip(shards, order.row_indices, strict=True)
            ]
            distinct.append(cls(own_ids, positions, parts, tf.size(rows)))
        return distinct
