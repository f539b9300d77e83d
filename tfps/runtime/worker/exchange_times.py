"""How long a worker's exchanges take, and how servers hear of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.bridge.kept_variable import KeptTensor
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.pushed import NOT_MEASURED
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.message import Request

NAME = "exchange_microseconds"


def timestamp_after(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The time when all of them are there."""
    with tf.control_dependencies(list(tensors)):
        return tf.timestamp()


def microseconds(begin: tf.Tensor, *, until: Sequence[tf.Tensor]) -> tf.Tensor:
    """From a timestamp until tensors are there, int64."""
    return tf.cast((timestamp_after(until) - begin) * 1e6, tf.int64)


def timed_exchange(
    carrier: Carrier, calls: Mapping[int, ServerCall]
) -> tuple[dict[int, Message], tf.Tensor]:
    """Bring requests to servers; answers the replies, and the microseconds until the last of them.

    Args:
        carrier: brings them.
        calls: by server.
    """
    begin = timestamp_after([tensor for call in calls.values() for tensor in call.request])
    sent = {}
    with tf.control_dependencies([begin]):
        for server, call in calls.items():
            request = call.request._replace(header=tf.identity(call.request.header))
            sent[server] = call._replace(request=request)
    replies = carrier.exchange(sent)
    return replies, microseconds(begin, until=[reply.header for reply in replies.values()])


class ExchangeTimes:
    """The durations of a worker's latest pull and push, until its next push says them.

    No other message follows the last push of a scheduled function, so they stay on the worker from
    one function to the next. The first pull on a worker is not counted: it connects, and prepares
    the functions.

    Args:
        runtime: the job.
    """

    def __init__(self, runtime: Runtime) -> None:
        runtime.kept_times.note_name(NAME)
        self._latest = KeptTensor(NAME, container=runtime.container, shape=(2,), dtype=tf.int64)

    def fields(self) -> dict[Request, tf.Tensor]:
        """What the next push says."""
        # A function may push what another one has pulled.
        self._latest.begin_with(tf.constant([NOT_MEASURED, NOT_MEASURED], tf.int64))
        push, pull = tf.unstack(self._latest.read_value())
        return {Request.PUSH_MICROSECONDS: push, Request.PULL_MICROSECONDS: pull}

    def has_pulled(self, duration: tf.Tensor) -> tf.Operation:
        """Note a pull; answers what does it, as `has_pushed` does.

        Args:
            duration: in microseconds.
        """

        def first() -> tf.Tensor:
            return tf.constant([NOT_MEASURED, NOT_MEASURED], tf.int64)

        def another() -> tf.Tensor:
            return tf.stack([self._latest.read_value()[0], duration])

        return self._latest.load(tf.cond(self._latest.is_kept, another, first))

    def has_pushed(self, duration: tf.Tensor) -> tf.Operation:
        """Note a push, which has told of what came before.

        Args:
            duration: in microseconds.
        """
        return self._latest.load(tf.stack([duration, tf.constant(NOT_MEASURED, tf.int64)]))
