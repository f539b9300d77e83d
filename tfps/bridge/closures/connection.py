"""What TensorFlow in this process has on the tasks of a cluster, and how it lets go of it."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.function_registration import disconnected
from tfps.cluster.address import split_address


def is_initialized() -> bool:
    """Whether TensorFlow's context has started, after which thread counts are fixed."""
    return private.current_context()._context_handle is not None


def is_on_a_cluster() -> bool:
    """Whether this process is a task of a cluster, so that its devices are named after that."""
    return private.current_context()._server_def is not None


def own_server_port() -> int:
    """At which port this process's own server listens, once it is a task of a cluster."""
    definition = private.current_context()._server_def
    jobs = {job.name: job for job in definition.cluster.job}
    return split_address(jobs[definition.job_name].tasks[definition.task_index])[1]


_connecting = threading.RLock()


@contextlib.contextmanager
def connecting() -> Iterator[None]:
    """While it is open, no other thread connects this process to a cluster.

    Two at a time would tell the tasks of the same change, and both would fail.
    """
    with _connecting:
        yield


def end_coordinator(coordinator: Any, make_error: Callable[[], Exception]) -> bool:
    """Cancel what runs, let the threads of a coordinator end, and return whether anything ran.

    The thread that connects lost workers anew would otherwise connect this process to the old
    cluster again, while it works with another one.

    Args:
        coordinator: with a `ClosureQueue`.
        make_error: of what `join` or `done` raises where something was cancelled.
    """
    cluster = coordinator._cluster
    cluster.failure_handler.stop()  # first: what is cancelled is no loss of a worker
    was_busy = cluster.closure_queue.close(make_error)
    for worker in cluster.workers:
        worker.stop()
    cluster.closure_queue.stop()
    cluster.resource_cancellation_mgr.start_cancel()
    return bool(was_busy)


def is_connected(addresses: Iterable[str]) -> bool:
    """Whether TensorFlow's context in this process knows one of these tasks, ``host:port``."""
    definition = private.current_context()._server_def
    if definition is None or not is_initialized():
        return False
    known = {address for job in definition.cluster.job for address in job.tasks.values()}
    return not known.isdisjoint(addresses)


def disconnect() -> None:
    """Let TensorFlow end what it has on the tasks of its cluster, while they still answer.

    It does so anyway when it connects to the next cluster, and complains of each task that is gone.
    It waits for every task without limit.
    """
    context = private.current_context()
    definition = context._server_def
    alone = copy.deepcopy(definition)
    alone.ClearField("cluster_device_filters")  # they cannot change without a new connection
    del alone.cluster.job[:]
    alone.cluster.job.extend(job for job in definition.cluster.job if job.name == alone.job_name)
    with connecting():
        context.update_server_def(alone)
    disconnected()
