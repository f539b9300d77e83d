"""The start of TensorFlow's own server in this process, with errors that name the port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.cluster.listening import check_listening, failed_to_listen
from tfps.cluster.spec import ClusterSpec

NOT_STARTED = "Could not start gRPC server"

_started: set[str] = set()  # addresses of all servers that this process has had


@contextlib.contextmanager
def server_start(spec: ClusterSpec, task_type: str, task_index: int) -> Iterator[None]:
    """While it is open, TensorFlow may start the server of this process's task.

    Args:
        spec: the cluster.
        task_type: of this process.
        task_index: of this process.

    Raises:
        PortInUse: the server cannot listen.
    """
    address = spec.address(task_type, task_index)
    if not _runs(address):
        check_listening(spec, task_type, task_index)
    try:
        yield
        _started.add(address)
    except tf.errors.UnknownError as error:
        if NOT_STARTED not in error.message:
            raise
        raise failed_to_listen(spec, task_type, task_index, error.message) from None


def is_left(address: str) -> bool:
    """Whether a server of this process listens there that it uses no more.

    TensorFlow cannot end a server. When the process connects to another cluster, a new one starts
    beside it; a third at the first one's address would share its port, and tasks that still have a
    connection would go on talking to the first.
    """
    return address in _started and not _runs(address)


def _runs(address: str) -> bool:
    """Whether the server is there already, from an earlier connection to the cluster."""
    definition = private.current_context()._server_def
    if definition is None:
        return False
    return any(
        job.name == definition.job_name and address in job.tasks.values()
        for job in definition.cluster.job
    )
