"""How the variables of a strategy are divided: partitioners of both kinds behind one question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.errors import ConfigError
from tfps.partitioners import Contiguous, Partitioner, Sharding, VariableSpec, Whole


class Stock:
    """A partitioner of `tf.distribute.experimental.partitioners`, or a function like one.

    Args:
        partitioner: from a shape and a dtype to the number of shards along each axis.
    """

    def __init__(self, partitioner: Callable[..., Any]) -> None:
        self._partitioner = partitioner

    def divide(self, variable: VariableSpec, *, servers: int) -> Sharding:
        shape, dtype = tf.TensorShape(variable.shape), tf.as_dtype(variable.dtype)
        counts = self._partitioner(shape=shape, dtype=dtype)
        if not counts or counts[0] < 1 or any(count != 1 for count in counts[1:]):
            raise ConfigError(
                f"variable_partitioner: received {counts!r} from {self._partitioner!r} for "
                f"{variable.path} of shape {variable.shape}; expected the number of shards along "
                f"each axis, such as {[2] + [1] * (len(variable.shape) - 1)}: only the first axis "
                "can be divided"
            )
        return Sharding(variable, Contiguous(variable.rows, min(counts[0], variable.rows)))


class Partitioning:
    """Divides the Keras variables of a strategy.

    Only what is trained is divided, and has an axis: all else is small, or the same on all servers.

    Args:
        partitioner: of `tfps.partitioners`, of TensorFlow, or None for none.
        servers: that the shards are for.
    """

    def __init__(self, partitioner: Any, *, servers: int) -> None:
        self._partitioner, self._servers = partitioner, servers

    def of(self, variable: VariableSpec, *, is_trained: bool) -> Sharding:
        """The shards of a variable that is made.

        Args:
            variable: what it will be.
            is_trained: whether Keras has made it to be trained, whatever is frozen later.

        Raises:
            ConfigError: the partitioner asks for what cannot be.
        """
        if not is_trained or not variable.shape or not variable.rows:
            return Sharding.whole(variable)
        return self._chosen().divide(variable, servers=self._servers)

    def _chosen(self) -> Partitioner:
        if self._partitioner is None:
            return Whole()
        if isinstance(self._partitioner, Partitioner):
            return self._partitioner
        return Stock(self._partitioner)


def for_raw_variables(partitioner: Any, *, servers: int) -> Any:
    """What TensorFlow divides raw variables with: its own, or one of ours, as neighbouring rows.

    Args:
        partitioner: of either kind, or None.
        servers: that the shards are for.
    """
    if not isinstance(partitioner, Partitioner):
        return partitioner

    def counts(shape: tf.TensorShape, dtype: tf.DType, axis: int = 0) -> Sequence[int]:  # noqa: ARG001 - TensorFlow's signature
        variable = VariableSpec("a raw variable", tuple(shape), tf.as_dtype(dtype).name)
        return [partitioner.divide(variable, servers=servers).shards, *[1] * (shape.rank - 1)]

    return counts
