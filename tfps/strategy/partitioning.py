"""How the variables of a strategy are divided: partitioners of both kinds behind one question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.errors import ConfigError
from tfps.partitioners import Contiguous, Parameter, Partitioner, Sharding, Whole


class Stock:
    """A partitioner of `tf.distribute.experimental.partitioners`, or a function like one.

    Args:
        partitioner: from a shape and a dtype to the number of shards along each axis.
        dtype: of the variables that it is asked about.
    """

    def __init__(self, partitioner: Callable[..., Any], *, dtype: tf.DType) -> None:
        self._partitioner, self._dtype = partitioner, dtype

    def divide(self, parameter: Parameter, *, servers: int) -> Sharding:
        shape = tf.TensorShape(parameter.shape)
        counts = self._partitioner(shape=shape, dtype=self._dtype)
        if not counts or counts[0] < 1 or any(count != 1 for count in counts[1:]):
            raise ConfigError(
                f"variable_partitioner: received {counts!r} from {self._partitioner!r} for "
                f"{parameter.path} of shape {parameter.shape}; expected the number of shards along "
                f"each axis, such as {[2] + [1] * (len(parameter.shape) - 1)}: only the first axis "
                "can be divided"
            )
        return Sharding(parameter, Contiguous(parameter.rows, min(counts[0], parameter.rows)))


class Partitioning:
    """Divides the Keras variables of a strategy.

    Only what is trained is divided, and has an axis: all else is small, or the same on all servers.

    Args:
        partitioner: of `tfps.partitioners`, of TensorFlow, or None for none.
        servers: that the shards are for.
    """

    def __init__(self, partitioner: Any, *, servers: int) -> None:
        self._partitioner, self._servers = partitioner, servers

    def of(self, parameter: Parameter, *, dtype: Any, is_trained: bool) -> Sharding:
        """The shards of a variable that is made.

        Args:
            parameter: the variable.
            dtype: of it.
            is_trained: whether Keras has made it to be trained, whatever is frozen later.

        Raises:
            ConfigError: the partitioner asks for what cannot be.
        """
        if not is_trained or not parameter.shape or not parameter.rows:
            return Sharding.whole(parameter)
        return self._chosen(dtype).divide(parameter, servers=self._servers)

    def _chosen(self, dtype: Any) -> Partitioner:
        if self._partitioner is None:
            return Whole()
        if isinstance(self._partitioner, Partitioner):
            return self._partitioner
        return Stock(self._partitioner, dtype=tf.as_dtype(dtype))


def for_raw_variables(partitioner: Any, *, servers: int) -> Any:
    """What TensorFlow divides raw variables with: its own, or one of ours, as neighbouring rows.

    Args:
        partitioner: of either kind, or None.
        servers: that the shards are for.
    """
    if not isinstance(partitioner, Partitioner):
        return partitioner

    def counts(shape: tf.TensorShape, dtype: tf.DType, axis: int = 0) -> Sequence[int]:  # noqa: ARG001 - TensorFlow's signature
        parameter = Parameter("a raw variable", tuple(shape), tf.as_dtype(dtype).size)
        return [partitioner.divide(parameter, servers=servers).shards, *[1] * (shape.rank - 1)]

    return counts
