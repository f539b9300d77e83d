"""Collects the delayed look-ups of one graph, which are sent together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.functions.movable_operation import (
    DeferredTensor,
    allow_early_run,
    is_movable,
    iter_predecessors,
)
from tfps.runtime.worker.levels import Levels


class LookUp(NamedTuple):
    """A layer's look-up of rows of a table."""

    number: int  # the index of the table
    ids: tf.Tensor  # an int64 vector


class PendingLookUp(NamedTuple):
    """A look-up that is sent later, together with others."""

    look_up: LookUp
    level: int  # the level of its ids
    rows: DeferredTensor


class GraphLookUps:
    """The delayed look-ups of a graph: of a step, a function, a loop's body or a branch.

    Args:
        graph: the graph that is traced.
        after: tensors that are ready when the rows have the values of this step.
    """

    def __init__(self, graph: Any, *, after: Sequence[tf.Tensor]) -> None:
        self.graph = graph
        self._pending: list[PendingLookUp] = []
        self.continue_after(after=after)

    def continue_after(self, *, after: Sequence[tf.Tensor]) -> None:
        """Let later look-ups wait for some tensors, so that they return newer rows.

        Operations that the graph has already do not wait for them.
        """
        self.after, self.is_outdated = after, False
        self._last_before = max((each._id for each in self.graph.get_operations()), default=-1)
        self._levels = Levels[Any](inputs=self._inputs, is_movable=self._make_movable)

    def delay(self, look_up: LookUp, *, shard: Any) -> tf.Tensor | None:
        """Delay a look-up; return a placeholder for its rows, or None if it cannot be delayed.

        Args:
            look_up: with ids of this graph.
            shard: a shard of the table, as a TensorFlow variable.
        """
        level = self._levels.compute_level(look_up.ids.op)
        if level is None:
            return None
        rows = DeferredTensor([look_up.ids.shape[0], *shard.shape[1:]], shard.dtype)
        self._levels.set_reply_level(rows.tensor.op, level=level)
        self._pending.append(PendingLookUp(look_up, level, rows))
        return rows.tensor

    def take_by_level(self) -> Iterator[list[PendingLookUp]]:
        """Remove the delayed look-ups, and yield them in lists that can be sent together."""
        pending, self._pending = self._pending, []
        for level in sorted({each.level for each in pending}):
            yield [each for each in pending if each.level == level]

    def _is_before(self, operation: Any) -> bool:
        return bool(operation._id <= self._last_before)

    def _inputs(self, operation: Any) -> Iterator[Any]:
        return iter(()) if self._is_before(operation) else iter_predecessors(operation)

    def _make_movable(self, operation: Any) -> bool:
        if self._is_before(operation):
            return True
        if not is_movable(operation):
            return False
        allow_early_run(operation)
        return True
