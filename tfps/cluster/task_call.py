"""Calls a Python function of a task's process, without a connected strategy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfps.cluster.waiting import Task

# What TensorFlow says of a PyFunc whose token the process does not know.
NOT_REGISTERED = "Could not find callback with key"


class UnknownFunction(LookupError):
    """A task's process does not know a function: it is a plain `tf.distribute.Server`, or older."""


def call_task(
    task: Task, token: str, value: np.number[Any] | bytes, *, returns: Any, timeout_s: float
) -> Any:
    """Run a task's function in a session of its own, and return what it returns.

    Args:
        task: its type, index and address.
        token: under which the function is registered.
        value: the argument.
        returns: a value of the type that it returns.
        timeout_s: how long the task may take.

    Raises:
        UnknownFunction: the task does not know it.
        tf.errors.OpError: the task did not answer.
    """
    import tensorflow as tf

    kind, index, address = task
    graph = tf.Graph()
    with graph.as_default(), tf.device(f"/job:{kind}/replica:0/task:{index}/device:CPU:0"):
        kinds = [tf.as_dtype(np.asarray(returns).dtype)]
        reply = tf.raw_ops.PyFunc(input=[tf.constant(value)], token=token, Tout=kinds)
    config = tf.compat.v1.ConfigProto(
        # Without the filter the task would first look for all others, and wait for the lost ones.
        device_filters=[f"/job:{kind}/task:{index}"],
        operation_timeout_in_ms=int(timeout_s * 1000),
    )
    try:
        with tf.compat.v1.Session(f"grpc://{address}", graph=graph, config=config) as session:
            return session.run(reply)[0]
    except tf.errors.OpError as error:
        if NOT_REGISTERED in error.message:
            raise UnknownFunction(f"{kind} {index} has no function {token}") from error
        raise
