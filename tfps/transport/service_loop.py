"""The loop that a parameter server runs for one connection: receive, call, reply."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.transport.carrier import Message
from tfps.transport.message import REQUEST_FIELDS
from tfps.transport.tokens import TURN

CONNECTION_ENDED = -1  # instead of a function's position: the connection has ended


def service_loop(
    functions: Sequence[Any], *, hot: Sequence[int], connection: tf.Tensor
) -> list[tf.Tensor]:
    """Trace the loop, which ends when the connection does.

    Replying and receiving the next request is one operation, so a step calls Python once. The
    functions that nearly all requests call have their own inner loop: a `Case` would visit the
    operations of all other functions each time.

    Args:
        functions: server functions from a request to a reply.
        hot: the positions of the functions that steps call. If there are several, each must be one
            operation of the graph, see `one_thread`.
        connection: int64 scalar, the number of the connection in this process.
    """

    def reply_and_receive(reply: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        position, *request = tf.raw_ops.PyFunc(
            input=[connection, *reply], token=TURN, Tout=[tf.int32, tf.int64, tf.int64, tf.uint8]
        )
        position.set_shape([])
        for tensor, spec in zip(request, Message.signature(REQUEST_FIELDS), strict=True):
            tensor.set_shape(spec.shape)
        return (position, *request)

    def is_hot(position: tf.Tensor, *_request: tf.Tensor) -> tf.Tensor:
        return functools.reduce(tf.logical_or, [tf.equal(position, each) for each in hot])

    def call_hot_function(position: tf.Tensor, *request: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return reply_and_receive(
            _call_function_at([(each, functions[each]) for each in hot], position, request)
        )

    def call_other_function(position: tf.Tensor, *request: tf.Tensor) -> tuple[tf.Tensor, ...]:
        branches = [lambda f=function: list(f(*request)) for function in functions]
        reply = tf.switch_case(position, branches)
        private.keep_control_flow_functional(private.current_graph())
        return reply_and_receive(reply)

    def call_function(*state: tf.Tensor) -> tuple[tf.Tensor, ...]:
        following = tf.cond(
            is_hot(*state),
            lambda: _loop(is_hot, call_hot_function, state),
            lambda: call_other_function(*state),
        )
        private.keep_control_flow_functional(private.current_graph())
        return tuple(following)

    nothing = (tf.zeros([0], tf.int64), tf.zeros([0], tf.int64), tf.zeros([0], tf.uint8))
    return list(
        _loop(lambda position, *_: position >= 0, call_function, reply_and_receive(nothing))
    )


def _call_function_at(
    functions: Sequence[tuple[int, Any]], position: tf.Tensor, request: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Return the reply of the function at a position."""
    (first, function), *others = functions
    if not others:
        return list(function(*request))
    return list(
        tf.cond(
            tf.equal(position, first),
            lambda: list(function(*request)),
            lambda: _call_function_at(others, position, request),
        )
    )


def _loop(condition: Any, body: Any, state: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    shapes = [tf.TensorShape([]), *(s.shape for s in Message.signature(REQUEST_FIELDS))]
    return tuple(
        tf.while_loop(condition, body, state, shape_invariants=tuple(shapes), parallel_iterations=1)
    )
