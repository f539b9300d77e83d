"""The loop that a parameter server runs for one connection: receive, decide, reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.transport.carrier import Message
from tfps.transport.message import REQUEST_FIELDS
from tfps.transport.tokens import TURN

HUNG_UP = -1  # instead of a function's position: the connection has ended


def service_loop(functions: Sequence[Any], *, hot: int, connection: tf.Tensor) -> list[tf.Tensor]:
    """Trace the loop; it ends when the connection does.

    Replying and receiving the next request is one operation, so a step crosses into Python once.
    The function that nearly every request asks for has an inner loop of its own: a `Case` would
    visit the operations of all other functions each time.

    Args:
        functions: server functions, from a request to a reply.
        hot: the position of the one that steps call.
        connection: int64 scalar, the number of the connection in this process.
    """

    def turn(reply: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        position, *request = tf.raw_ops.PyFunc(
            input=[connection, *reply], token=TURN, Tout=[tf.int32, tf.int64, tf.int64, tf.uint8]
        )
        position.set_shape([])
        for tensor, spec in zip(request, Message.signature(REQUEST_FIELDS), strict=True):
            tensor.set_shape(spec.shape)
        return (position, *request)

    def is_hot(position: tf.Tensor, *_request: tf.Tensor) -> tf.Tensor:
        return tf.equal(position, hot)

    def answer_hot(_position: tf.Tensor, *request: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return turn(functions[hot](*request))

    def answer_other(position: tf.Tensor, *request: tf.Tensor) -> tuple[tf.Tensor, ...]:
        branches = [lambda f=function: list(f(*request)) for function in functions]
        reply = tf.switch_case(position, branches)
        private.keep_functional(private.current_graph())
        return turn(reply)

    def answer(*state: tf.Tensor) -> tuple[tf.Tensor, ...]:
        following = tf.cond(
            is_hot(*state),
            lambda: _loop(is_hot, answer_hot, state),
            lambda: answer_other(*state),
        )
        private.keep_functional(private.current_graph())
        return tuple(following)

    nothing = (tf.zeros([0], tf.int64), tf.zeros([0], tf.int64), tf.zeros([0], tf.uint8))
    return list(_loop(lambda position, *_: position >= 0, answer, turn(nothing)))


def _loop(condition: Any, body: Any, state: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    shapes = [tf.TensorShape([]), *(s.shape for s in Message.signature(REQUEST_FIELDS))]
    return tuple(
        tf.while_loop(condition, body, state, shape_invariants=tuple(shapes), parallel_iterations=1)
    )
