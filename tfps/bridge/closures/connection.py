"""Reads the state of this process's connection to a cluster, and ends the connection."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.function_registration import remove_collected_functions
from tfps.cluster.address import split_address
from tfps.errors import UnsupportedError

# The device of all that is made before connecting; afterwards no device has this name.
EARLY_DEVICE = "/job:localhost"


def is_initialized() -> bool:
    """Return whether TensorFlow's context has started, which fixes the thread counts."""
    return private.current_context()._context_handle is not None


def is_in_cluster() -> bool:
    """Return whether this process is a task of a cluster, with devices named after that task."""
    return private.current_context()._server_def is not None


def get_own_server_port() -> int:
    """Return the port of this process's own server; the process must be a task of a cluster."""
    definition = private.current_context()._server_def
    jobs = {job.name: job for job in definition.cluster.job}
    return split_address(jobs[definition.job_name].tasks[definition.task_index])[1]


def names_early_device(error: BaseException) -> bool:
    """Return whether an error names a device that existed only before the connection."""
    return EARLY_DEVICE in str(error) and is_in_cluster()


def early_device_error(user: str) -> UnsupportedError:
    """Return the error for what uses such a device; TensorFlow's only says "unknown device"."""
    return UnsupportedError(
        f"{user} uses a variable, a table or a layer with a vocabulary created before the strategy "
        "connected to its cluster, which TensorFlow can no longer use. Create the strategy first, "
        "or make all of them in the function"
    )


_connection_lock = threading.RLock()


@contextlib.contextmanager
def lock_connection() -> Iterator[None]:
    """Keep other threads from connecting this process to a cluster while the context is open.

    Two threads at once would send the same change to the tasks, and both would fail.
    """
    with _connection_lock:
        yield


def stop_coordinator(coordinator: Any, make_error: Callable[[], Exception]) -> bool:
    """Cancel a coordinator's closures, stop its threads, and return whether any closure ran.

    The thread that reconnects lost workers could otherwise connect this process to the old cluster
    again, while the process already works with another one.

    Args:
        coordinator: a coordinator with a `ClosureQueue`.
        make_error: makes the error that `join` or `done` raises if closures were cancelled.
    """
    cluster = coordinator._cluster
    cluster.failure_handler.stop()  # first: a cancelled closure is no lost worker
    was_busy = cluster.closure_queue.close(make_error)
    for worker in cluster.workers:
        worker.stop()
    cluster.closure_queue.stop()
    cluster.resource_cancellation_mgr.start_cancel()
    return bool(was_busy)


def is_connected(addresses: Iterable[str]) -> bool:
    """Return whether this process is connected to one of these tasks, given as ``host:port``."""
    definition = private.current_context()._server_def
    if definition is None or not is_initialized():
        return False
    known = {address for job in definition.cluster.job for address in job.tasks.values()}
    return not known.isdisjoint(addresses)


def is_connected_with(jobs: Mapping[str, Sequence[str]]) -> bool:
    """Return whether this process is connected with these tasks, and with no others.

    Args:
        jobs: the addresses of each job's tasks.
    """
    definition = private.current_context()._server_def
    if definition is None or not is_initialized():
        return False
    known = {job.name: [a for _, a in sorted(job.tasks.items())] for job in definition.cluster.job}
    return known == {name: [*addresses] for name, addresses in jobs.items() if addresses}


def disconnect() -> None:
    """Close TensorFlow's connections to the tasks of its cluster while the tasks still respond.

    TensorFlow would do this when it connects to the next cluster, and log an error for each task
    that is gone by then. It waits for every task without limit.
    """
    context = private.current_context()
    definition = context._server_def
    alone = copy.deepcopy(definition)
    alone.ClearField("cluster_device_filters")  # they cannot change without a new connection
    del alone.cluster.job[:]
    alone.cluster.job.extend(job for job in definition.cluster.job if job.name == alone.job_name)
    with lock_connection():
        context.update_server_def(alone)
    remove_collected_functions()
