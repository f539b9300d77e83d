"""Divide a strategy's variables by a partitioner of tfps or of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.errors import ConfigError
from tfps.partitioners import Contiguous, Partitioner, Sharding, VariableSpec, Whole


class StockPartitioner:
    """Adapts a TensorFlow partitioner, or a function like one, to the interface of tfps.

    Args:
        partitioner: takes a shape and a dtype, and returns the number of shards of each axis.
    """

    def __init__(self, partitioner: Callable[..., Any]) -> None:
        self._partitioner = partitioner

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        shape, dtype = tf.TensorShape(variable.shape), tf.as_dtype(variable.dtype)
        counts = self._partitioner(shape=shape, dtype=dtype)
        if not counts or counts[0] < 1 or any(count != 1 for count in counts[1:]):
            raise ConfigError(
                f"variable_partitioner: received {counts!r} from {self._partitioner!r} for "
                f"{variable.path} of shape {variable.shape}, expected the number of shards along "
                f"each axis, such as {[2] + [1] * (len(variable.shape) - 1)}; divide only the "
                "first axis"
            )
        return Sharding(variable, Contiguous(variable.rows, min(counts[0], variable.rows)))


class Partitioning:
    """Divides the Keras variables of a strategy.

    Only trained variables with an axis are divided: others are small, or the same on all servers.

    Args:
        partitioner: a partitioner of `tfps.partitioners` or of TensorFlow; None: divide nothing.
        servers: the number of servers.
    """

    def __init__(self, partitioner: Any, *, servers: int) -> None:
        self._partitioner, self._servers = partitioner, servers

    def sharding(self, variable: VariableSpec, *, is_trained: bool) -> Sharding:
        """Return the division of a new variable into shards.

        Args:
            variable: the variable's path, shape and dtype.
            is_trained: whether Keras makes it as a trainable variable; it may be frozen later.

        Raises:
            ConfigError: the partitioner's result is invalid.
        """
        if not is_trained or not variable.shape or not variable.rows:
            return Sharding.whole(variable)
        return self._get_partitioner().divide(variable, servers=self._servers)

    def _get_partitioner(self) -> Partitioner:
        if self._partitioner is None:
            return Whole()
        if isinstance(self._partitioner, Partitioner):
            return self._partitioner
        return StockPartitioner(self._partitioner)


def to_raw_partitioner(partitioner: Any, *, servers: int) -> Any:
    """Return the partitioner that TensorFlow gets for raw variables.

    One of `tfps.partitioners` is wrapped: TensorFlow makes its shards of neighbouring rows.

    Args:
        partitioner: a partitioner of tfps or of TensorFlow, or None.
        servers: the number of servers.
    """
    if not isinstance(partitioner, Partitioner):
        return partitioner

    def counts(shape: tf.TensorShape, dtype: tf.DType, axis: int = 0) -> Sequence[int]:  # noqa: ARG001 - TensorFlow's signature
        variable = VariableSpec("a raw variable", tuple(shape), tf.as_dtype(dtype).name)
        return [partitioner.divide(variable, servers=servers).shards, *[1] * (shape.rank - 1)]

    return counts
