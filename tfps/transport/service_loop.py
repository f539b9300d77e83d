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

HUNG_UP = -1  # instead of a function's position: the connection has ended


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

    def turn(reply: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        position, *request = tf.raw_ops.PyFunc(
            input=[connection, *reply], token=TURN, Tout=[tf.int32, tf.int64, tf.int64, tf.uint8]
        )
        position.set_shape([])
        for tensor, spec in zip(request, Message.signature(REQUEST_FIELDS), strict=True):
            tensor.set_shape(spec.shape)
        return (position, *request)

    def is_hot(position: tf.Tensor, *_request: tf.Tensor) -> tf.Tensor:
        return functools.reduce(tf.logical_or, [tf.equal(position, each) for each in hot])

    def answer_hot(position: tf.Tensor, *request: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return turn(_one_of([(each, functions[each]) for each in hot], position, request))

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


def _one_of(
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
            lambda: _one_of(others, position, request),
        )
    )


def _loop(condition: Any, body: Any, state: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    shapes = [tf.TensorShape([]), *(s.shape for s in Message.signature(REQUEST_FIELDS))]
    return tuple(
        tf.while_loop(condition, body, state, shape_invariants=tuple(shapes), parallel_iterations=1)
    )
