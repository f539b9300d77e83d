"""Stores the durations of a scheduled function's exchanges until the next push reports them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.bridge.variables.server_trace import to_constant
from tfps.bridge.variables.worker_local_variable import WorkerLocalTensor
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.request_header import NOT_MEASURED, Fields
from tfps.transport.message import Request

RESOURCE_NAME = "exchange_microseconds"
NOTHING = [NOT_MEASURED] * 3


class ExchangeTimes:
    """The durations of a worker's latest pull, push and decoding, until its next push reports them.

    No other message follows the last push of a scheduled function, so they stay on the worker from
    one function to the next. The first pull on a worker is not counted: it connects, and prepares
    the functions.
    """

    def __init__(self, runtime: Runtime) -> None:
        runtime.local_times.register_name(RESOURCE_NAME)
        self._latest = WorkerLocalTensor(
            RESOURCE_NAME, container=runtime.container, shape=(3,), dtype=tf.int64
        )

    def read_fields(self) -> Fields:
        """Read the durations that the next push reports, as header fields."""
        # A function may push after a pull of another function.
        self._latest.load_if_missing(tf.constant(NOTHING, tf.int64))
        push, pull, decoding = tf.unstack(self._latest.read_value())
        return {
            Request.PUSH_MICROSECONDS: push,
            Request.PULL_MICROSECONDS: pull,
            Request.DECODE_MICROSECONDS: decoding,
        }

    def record_pull(self, duration: tf.Tensor) -> tf.Operation:
        """Record the duration of a pull, in microseconds, and return the operation."""
        latest = tf.cond(
            self._latest.has_value,
            lambda: tf.tensor_scatter_nd_update(self._latest.read_value(), [[1]], [duration]),
            lambda: tf.constant(NOTHING, tf.int64),
        )
        return self._latest.load(latest)

    def record_push(self, duration: tf.Tensor, *, decoding: Any = NOT_MEASURED) -> tf.Operation:
        """Record the microseconds of a push and of its decoding, and clear those of the pull."""
        return self._latest.load(
            tf.stack([duration, to_constant(NOT_MEASURED), to_constant(decoding)])
        )
