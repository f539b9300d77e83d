"""Which worker runs a function, as a tensor inside the function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.chief_constant import chief_constant
from tfps.bridge.functions.traced_graph import is_part
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.request_header import Fields
from tfps.runtime.server.half import ServerHalf
from tfps.transport.message import Request

_INDEX = tf.TensorSpec([], tf.int64)


def worker_of_call() -> tf.Tensor:
    """The index of the worker on whose behalf the current function is called, int64.

    `message.COORDINATOR` where the coordinator calls it for itself. A function that is called by
    another one takes it from that one, unlike with
    `tf.distribute.coordinator.experimental_get_current_worker_index`.
    """
    graph: Any = private.current_graph()
    while is_part(graph):
        graph = graph.outer_graph
    with graph.as_default():
        return graph.capture_call_time_value(_at_call, _INDEX, key="tfps_worker_index")


def life_of_call(runtime: Runtime) -> tf.Tensor:
    """The number of the life in which a worker calls the function that is traced, int64."""
    graph: Any = private.current_graph()

    def at_call() -> tf.Tensor:
        return chief_constant(runtime.life_of(private.worker_index()), tf.int64)

    return graph.capture_call_time_value(at_call, _INDEX, key="tfps_life")


def stream_of_call(runtime: Runtime) -> tf.Tensor:
    """The stream of random numbers that is the worker's own in the life that it has, int64.

    0 where there is one worker, whose numbers are those of one process, and on the chief.
    """
    if runtime.workers == 1:
        return tf.constant(0, tf.int64)
    worker = worker_of_call()
    stream = 1 + worker + runtime.workers * life_of_call(runtime)
    return tf.where(worker < 0, tf.zeros_like(stream), stream)


def caller_of_call(servers: Iterable[ServerHalf]) -> Fields:
    """Who calls the current function, if one of the servers' functions asks: header fields."""
    return fields_of(worker_of_call()) if any(server.asks_who for server in servers) else {}


def fields_of(worker: tf.Tensor) -> Fields:
    """Header fields that name a worker by its index; the coordinator has none, but a ticket."""
    zero = tf.constant(0, tf.int64)
    return {Request.WORKER: tf.maximum(worker, zero), Request.TICKET: tf.minimum(worker, zero)}


def _at_call() -> tf.Tensor:
    if not tf.executing_eagerly():  # one function calls another
        return worker_of_call()
    return chief_constant(private.worker_index(), tf.int64)
