"""Stores a worker's copies of values that scheduled functions read and do not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.worker_local_variable import WorkerLocalTensor
from tfps.runtime.message.payload import decode_values
from tfps.runtime.server.function_half import FunctionHalf
from tfps.transport.carrier import Message
from tfps.transport.message import Reply


class _ServerCopy(NamedTuple):
    """The copies of one server's values."""

    payload: WorkerLocalTensor  # the payload of its reply
    number: WorkerLocalTensor  # the server's number of these values


class UnchangedValues:
    """Values that a worker pulls again only if their number on a server has changed.

    Functions that read the same variables share them. They stay on the worker until the job ends.

    Args:
        servers: a function's halves on the servers.
    """

    def __init__(self, servers: Sequence[FunctionHalf]) -> None:
        self._servers = servers
        self._kept: dict[int, _ServerCopy] = {}
        for number, server in enumerate(servers):
            if server.unchanged.variables:
                name, size = server.unchanged_values_key, server.unchanged_layout.size_bytes
                self._kept[number] = _ServerCopy(
                    self._create_on_worker(name, [size], tf.uint8),
                    self._create_on_worker(f"{name}_number", [], tf.int64),
                )

    def _create_on_worker(
        self, name: str, shape: Sequence[int], dtype: tf.DType
    ) -> WorkerLocalTensor:
        runtime = self._servers[0].runtime
        runtime.local_values.register_name(name)
        return WorkerLocalTensor(name, container=runtime.container, shape=shape, dtype=dtype)

    def refresh(
        self, numbers: Sequence[tf.Tensor], pull: Callable[[Sequence[int]], Mapping[int, Message]]
    ) -> None:
        """Trace a pull of the values whose number has changed.

        Args:
            numbers: the servers' numbers, by server.
            pull: pulls unchanged values from some servers.
        """
        if not self._kept:
            return
        known = [_read_number(values.number) for values in self._kept.values()]
        is_new = tf.reduce_any(tf.stack([numbers[p] for p in self._kept]) != tf.stack(known))

        def renew() -> tf.Tensor:
            replies = pull(list(self._kept))
            for server, values in self._kept.items():
                reply = replies[server]
                # If the worker is stopped in between, it has to pull again.
                unknown = values.number.load(tf.zeros([], tf.int64))
                with tf.control_dependencies([unknown]):
                    loaded = values.payload.load(reply.payload)
                with tf.control_dependencies([loaded]):
                    values.number.load(reply.header[Reply.OTHER_WRITES])
            return tf.constant(0)

        tf.cond(is_new, renew, lambda: tf.constant(0))

    def read_values(self, variables: Sequence[Any]) -> list[tuple[Any, tf.Tensor]]:
        """Read the values of all unchanged variables among some variables."""
        layouts = [self._servers[p].unchanged_layout for p in self._kept]
        payloads = [values.payload.read_value() for values in self._kept.values()]
        return decode_values(layouts, payloads, variables)


def _read_number(number: WorkerLocalTensor) -> tf.Tensor:
    return tf.cond(number.has_value, number.read_value, lambda: tf.zeros([], tf.int64))
