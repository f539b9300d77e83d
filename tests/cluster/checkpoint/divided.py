"""A variable in shards, as those of strategies that divide variables are seen by checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np

from tfps.checkpoint.layout import logical_rows_at
from tfps.partitioners.row_rule import RowRule, rows_per_shard


class RowsByShard:
    """Stands for a Keras variable whose rows lie in several ones.

    Args:
        rule: which row lies where.
        make: of a shard's shape, makes a Keras variable.
        columns: the shape of a row.
    """

    def __init__(
        self,
        rule: RowRule,
        make: Callable[[tuple[int, ...]], keras.Variable],
        *,
        columns: Sequence[int] = (3,),
    ) -> None:
        self.rule, self.path = rule, "table"
        self.shape = (rule.rows, *columns)
        self.shards = [make((rows, *columns)) for rows in rows_per_shard(rule)]
        self._value = SimpleNamespace(shards=self.shards, rule=rule)

    def _rows(self, shard: int) -> np.ndarray[Any, Any]:
        return logical_rows_at(self.rule, shard, range(rows_per_shard(self.rule)[shard]))

    def assign(self, value: np.ndarray[Any, Any]) -> None:
        """Write the whole of it."""
        for index, shard in enumerate(self.shards):
            shard.assign(value[self._rows(index)])

    def numpy(self) -> np.ndarray[Any, Any]:
        """Read the whole of it."""
        value = np.zeros(self.shape, "float32")
        for index, shard in enumerate(self.shards):
            value[self._rows(index)] = shard.numpy()
        return value
