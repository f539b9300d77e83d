"""Captures the index of the worker that runs a function, as a tensor inside the function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.chief_constant import chief_constant
from tfps.bridge.functions.traced_graph import is_branch_or_loop
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.request_header import Fields
from tfps.runtime.server.half import ServerHalf
from tfps.transport.message import Request

_INDEX = tf.TensorSpec([], tf.int64)


def capture_worker_index() -> tf.Tensor:
    """Capture the int64 index of the worker for which the current function is called.

    `message.COORDINATOR` if the coordinator calls it for itself. A function that another function
    calls takes the index from it, unlike with
    `tf.distribute.coordinator.experimental_get_current_worker_index`.
    """
    graph: Any = private.current_graph()
    while is_branch_or_loop(graph):
        graph = graph.outer_graph
    with graph.as_default():
        return graph.capture_call_time_value(_read_worker_index, _INDEX, key="tfps_worker_index")


def capture_life(runtime: Runtime) -> tf.Tensor:
    """Capture the int64 number of the worker's life in which it calls the traced function."""
    graph: Any = private.current_graph()

    def at_call() -> tf.Tensor:
        return chief_constant(runtime.get_life(private.get_worker_index()), tf.int64)

    return graph.capture_call_time_value(at_call, _INDEX, key="tfps_life")


def capture_stream(runtime: Runtime) -> tf.Tensor:
    """Capture the int64 number of the worker's own stream of random numbers.

    0 on the chief, and for an only worker, which draws the numbers of a single process.
    """
    if runtime.workers == 1:
        return tf.constant(0, tf.int64)
    worker = capture_worker_index()
    stream = 1 + worker + runtime.workers * capture_life(runtime)
    return tf.where(worker < 0, tf.zeros_like(stream), stream)


def capture_caller_fields(servers: Iterable[ServerHalf]) -> Fields:
    """Capture a header field that names the current worker, if a server needs it, else none."""
    if not any(server.depends_on_sender for server in servers):
        return {}
    # The coordinator counts as worker 0.
    return {Request.WORKER: tf.maximum(capture_worker_index(), tf.constant(0, tf.int64))}


def _read_worker_index() -> tf.Tensor:
    if not tf.executing_eagerly():  # one function calls another
        return capture_worker_index()
    return chief_constant(private.get_worker_index(), tf.int64)
