"""Calls a Python function in a task's process, without a connected strategy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfps.cluster.waiting import Task

# TensorFlow's message for a PyFunc whose token the process does not know.
NOT_REGISTERED = "Could not find callback with key"


class UnknownFunction(LookupError):
    """The task has not registered the function: it is TensorFlow's server, or of an older tfps."""


def call_task(
    task: Task, token: str, value: np.number[Any] | bytes, *, returns: Any, timeout_s: float
) -> Any:
    """Call a task's function in a separate session, and return its result.

    Args:
        task: the type, index and address of the task.
        token: the name under which the function is registered.
        value: the argument.
        returns: any value of the type that the function returns.
        timeout_s: the time limit.

    Raises:
        UnknownFunction: the task does not know the function.
        tf.errors.OpError: the task did not reply.
    """
    import tensorflow as tf

    kind, index, address = task
    graph = tf.Graph()
    with graph.as_default(), tf.device(f"/job:{kind}/replica:0/task:{index}/device:CPU:0"):
        kinds = [tf.as_dtype(np.asarray(returns).dtype)]
        reply = tf.raw_ops.PyFunc(input=[tf.constant(value)], token=token, Tout=kinds)
    config = tf.compat.v1.ConfigProto(
        # Without the filter the task would first connect to all others, and wait for lost ones.
        device_filters=[f"/job:{kind}/task:{index}"],
        operation_timeout_in_ms=int(timeout_s * 1000),
    )
    try:
        with tf.compat.v1.Session(f"grpc://{address}", graph=graph, config=config) as session:
            return session.run(reply)[0]
    except tf.errors.OpError as error:
        if NOT_REGISTERED in error.message:
            raise UnknownFunction(f"{kind} {index} lacks the function {token}") from error
        raise
