"""Rows of a table, as far as they lie in one shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.shards import RowsByShard, rule_of, shards_of


class ShardRows(NamedTuple):
    """Some rows of a table, as far as they lie in one shard."""

    server: int
    shard: Any  # as a Keras variable
    positions: tf.Tensor  # among the rows
    places: tf.Tensor  # in the shard

    @property
    def native(self) -> Any:
        """The shard's variable."""
        return self.shard._value


def rows_by_shard(table: Any, ids: tf.Tensor, *, devices: Sequence[str]) -> list[ShardRows]:
    """Divide rows by the shard that they lie in.

    Args:
        table: as a Keras variable.
        ids: of the rows, an int64 vector.
        devices: of the servers, in their order.
    """
    shards = shards_of(table)
    servers = [devices.index(shard._value.device) for shard in shards]
    divided = RowsByShard.by(rule_of(table), ids)
    return list(map(ShardRows, servers, shards, divided.positions, divided.places))
