"""Room in a table of TensorFlow's that must not grow while functions run."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

logger = logging.getLogger(__name__)

# The table doubles when it is full: 33 entries leave room for 64. A model takes about ten on the
# chief and, over gRPC, four for each server on a worker.
FEWEST_ENTRIES = 33
# Closures of all workers start side by side, each with an entry of its own on the chief.
ENTRIES_PER_TASK = 4
# gRPC connects again a second after it was refused.
ATTEMPTS, RECONNECT_AFTER_S = 3, 1.0


def make_room(*, workers: Sequence[str], server: str, tasks: int) -> None:
    """Let the tables of remote functions grow before anything runs.

    A process keeps what it calls on other tasks in one vector, and a call that has found its entry
    reads the name of its target from there without the lock (TensorFlow 2.21,
    `EagerClusterFunctionLibraryRuntime::Run`). When another thread calls something for the first
    time at that moment and the vector moves, the name is garbage: the call fails with "Unable to
    parse request", or the process is aborted. Calls that run side by side for the first time, as
    closures of workers and requests to several servers do, meet it while the table is small.

    Args:
        workers: devices of tasks whose tables shall have room, beside this process's own.
        server: the device of a task that all of them can call.
        tasks: how many workers and servers there are.
    """
    entries = max(FEWEST_ENTRIES, ENTRIES_PER_TASK * tasks + 1)
    own = tf.config.list_logical_devices("CPU")[0].name
    _fill([own], server, entries)  # alone: the next line calls functions on workers
    if workers:
        _fill(workers, server, entries)


def _fill(devices: Sequence[str], server: str, entries: int) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _call(devices, server, entries)
            return
        except tf.errors.OpError as error:
            # A worker that knew the server before it was started anew refuses to connect at first.
            # Without the room everything works as well as in TensorFlow itself.
            logger.info("no room for functions (attempt %d): %s", attempt, error.message)
            time.sleep(RECONNECT_AFTER_S)


def _call(devices: Sequence[str], server: str, entries: int) -> None:
    with tf.device(server):
        answer = tf.function(
            tf.identity, input_signature=[tf.TensorSpec([], tf.int32)], autograph=False
        ).get_concrete_function()

    @tf.function(autograph=False)
    def fill() -> list[tf.Tensor]:
        answer.add_to_graph(tf.compat.v1.get_default_graph())
        ends = []
        for device in devices:
            with tf.device(device):
                value = tf.constant(0)
                for number in range(entries):
                    # One function; TensorFlow takes it for another one with other attributes.
                    (value,) = tf.raw_ops.RemoteCall(
                        target=server,
                        args=[value],
                        Tout=[tf.int32],
                        f=function_with_attribute(answer, "tfps_entry", number),
                    )
                    private.run_independently(value.op)  # its argument makes it wait
                ends.append(value)
        return ends

    fill()


def function_with_attribute(function: Any, name: str, value: int) -> Any:
    """What an operation calls: a function, with an attribute that the function ignores."""
    called = tf.compat.v1.NameAttrList(name=function.name)
    called.attr[name].i = value
    return called
