"""The durations of a scheduled function's exchanges, until servers hear of them."""

from __future__ import annotations

import tensorflow as tf

from tfps.bridge.worker_local_variable import WorkerLocalTensor
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.request_header import NOT_MEASURED, Fields
from tfps.transport.message import Request

NAME = "exchange_microseconds"


class ExchangeTimes:
    """The durations of a worker's latest pull and push, until its next push says them.

    No other message follows the last push of a scheduled function, so they stay on the worker from
    one function to the next. The first pull on a worker is not counted: it connects, and prepares
    the functions.
    """

    def __init__(self, runtime: Runtime) -> None:
        runtime.local_times.note_name(NAME)
        self._latest = WorkerLocalTensor(
            NAME, container=runtime.container, shape=(2,), dtype=tf.int64
        )

    def fields(self) -> Fields:
        """What the next push says."""
        # A function may push what another one has pulled.
        self._latest.begin_with(tf.constant([NOT_MEASURED, NOT_MEASURED], tf.int64))
        push, pull = tf.unstack(self._latest.read_value())
        return {Request.PUSH_MICROSECONDS: push, Request.PULL_MICROSECONDS: pull}

    def has_pulled(self, duration: tf.Tensor) -> tf.Operation:
        """Note a pull, in microseconds; answers what does it, as `has_pushed` does."""
        latest = tf.cond(
            self._latest.is_kept,
            lambda: tf.stack([self._latest.read_value()[0], duration]),
            lambda: tf.constant([NOT_MEASURED, NOT_MEASURED], tf.int64),
        )
        return self._latest.load(latest)

    def has_pushed(self, duration: tf.Tensor) -> tf.Operation:
        """Note a push, in microseconds, which has told of what came before."""
        return self._latest.load(tf.stack([duration, tf.constant(NOT_MEASURED, tf.int64)]))
