"""The mean of what workers have trained by themselves so far, on one server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.bridge.server_variable import ServerVariable
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.wire import gradient_of, name_of


class _Sum(NamedTuple):
    """Of one variable: what the workers began with, their differences to it, and their calls."""

    begin: ServerVariable
    differences: ServerVariable
    calls: ServerVariable


def sum_dtype(native: Any) -> tf.DType:
    """What differences of a variable are added up in."""
    return tf.float32 if native.dtype.size < tf.float32.size else native.dtype


class WarmUpSums:
    """Adds up differences, each times the optimizer calls of its worker.

    A variable on the server is always the mean, so whoever reads it or saves it in the middle has
    what was trained so far. What somebody else writes to it moves the mean by as much.

    Args:
        server: whose variables they are.
        runtime: makes variables on servers.
    """

    def __init__(self, server: Server, *, runtime: Any) -> None:
        self._server, self._runtime = server, runtime
        self._sums: dict[str, _Sum] = {}
        self._open = self._variable(True, "is_open", tf.bool)
        self._calls = self._variable(np.zeros([server.books.slots]), "calls", tf.int64)

    def _variable(self, value: Any, name: str, dtype: tf.DType) -> ServerVariable:
        variable: ServerVariable = self._runtime.create_variable(
            value,
            device=self._server.device,
            planned=False,
            trainable=False,
            dtype=dtype,
            name=f"warm_up_{name}",
        )
        return variable

    def note(self, pieces: Sequence[Any]) -> None:
        """Workers are going to train these variables, or parts of such, of the server."""
        for piece in pieces:
            native = piece._value
            if native.shared_name not in self._sums:
                self._sums[native.shared_name] = self._sum_of(native)

    def _sum_of(self, native: Any) -> _Sum:
        dtype, name = sum_dtype(native), native.shared_name
        return _Sum(
            self._variable(lambda: tf.cast(native.read_value(), dtype), f"{name}_begin", dtype),
            self._variable(lambda: tf.zeros(native.shape, dtype), f"{name}_differences", dtype),
            self._variable(0.0, f"{name}_calls", tf.float64),
        )

    def is_open(self) -> tf.Tensor:
        """Whether the warm-up goes on, as the server knows; bool scalar."""
        return self._open.read_value()

    def begins(self, pieces: Sequence[Any]) -> dict[str, tf.Tensor]:
        """What workers begin with, by name; in the dtype of the sums."""
        return {name_of(piece): self._begin(piece) for piece in pieces}

    def add(
        self,
        pieces: Sequence[Any],
        changes: Mapping[str, tf.Tensor],
        *,
        calls: tf.Tensor,
        slot: tf.Tensor,
    ) -> tf.Tensor:
        """Take over what a worker's differences have changed by; answers when it is done.

        Args:
            pieces: what was trained.
            changes: by `gradient_of`.
            calls: optimizer calls of the worker that are new, int64.
            slot: the worker.
        """
        done = []
        for piece in pieces:
            native, known = piece._value, self._sums[name_of(piece)]
            begin = self._begin(piece)
            differences = known.differences.read_value() + changes[gradient_of(native)]
            count = known.calls.read_value() + tf.cast(calls, tf.float64)
            mean = _mean(begin, differences, count)
            done += [
                native.assign(tf.cast(mean, native.dtype), read_value=False),
                known.begin.assign(begin, read_value=False),
                known.differences.assign(differences, read_value=False),
                known.calls.assign(count, read_value=False),
            ]
        tf.raw_ops.ResourceScatterAdd(resource=self._calls.handle, indices=slot, updates=calls)
        self._count_update(tf.minimum(calls, tf.constant(1, tf.int64)))
        with tf.control_dependencies([operation for operation in done if operation is not None]):
            return tf.constant(0)

    def _begin(self, piece: Any) -> tf.Tensor:
        """With what others have written to the variable meanwhile."""
        native, known = piece._value, self._sums[name_of(piece)]
        begin, count = known.begin.read_value(), known.calls.read_value()
        mean = tf.cast(_mean(begin, known.differences.read_value(), count), native.dtype)
        return begin + tf.cast(native.read_value() - mean, begin.dtype)

    def _count_update(self, count: tf.Tensor) -> None:
        """The whole warm-up is one update."""
        self._server.ledger.raise_to(self._server.books.VERSION, count)

    def trace_calls(self) -> list[tf.Tensor]:
        """For the coordinator: the optimizer calls of each worker so far."""
        with self._server.ledger.locked():
            calls = self._calls.read_value()
        return [calls]

    def trace_end(self, has_trained: tf.Tensor) -> list[tf.Tensor]:
        """For the coordinator: refuse what still comes, and free the sums.

        Args:
            has_trained: 1 if any worker has, on any server, else 0.
        """
        with self._server.ledger.locked():
            self._open.assign(False, read_value=False)
            self._count_update(has_trained)
            for variable in (variable for known in self._sums.values() for variable in known):
                tf.raw_ops.DestroyResourceOp(resource=variable.handle, ignore_lookup_error=True)
        return [tf.constant(0, tf.int64)]


def _mean(begin: tf.Tensor, differences: tf.Tensor, calls: tf.Tensor) -> tf.Tensor:
    return begin + differences / tf.cast(tf.maximum(calls, 1.0), differences.dtype)
