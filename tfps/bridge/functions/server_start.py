"""Starts TensorFlow's server in this process, with errors that name the port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.cluster.address import split_address
from tfps.cluster.listening import check_listening, make_port_error
from tfps.cluster.spec import ClusterSpec

NOT_STARTED = "Could not start gRPC server"


@contextlib.contextmanager
def check_server_start(spec: ClusterSpec, task_type: str, task_index: int) -> Iterator[None]:
    """Check the port before TensorFlow starts this process's server, and name it in errors.

    Args:
        spec: the cluster.
        task_type: the type of this process's task.
        task_index: the index of this process's task.

    Raises:
        ListenError: the server cannot listen at its address.
    """
    address = spec.address(task_type, task_index)
    if not _is_running(address):
        check_listening(spec, task_type, task_index)
    try:
        yield
    except tf.errors.UnknownError as error:
        if NOT_STARTED not in error.message:
            raise
        raise make_port_error(spec, task_type, task_index, error.message) from None


def is_abandoned(address: str) -> bool:
    """Return whether a server of this process that is no longer used still listens at an address.

    TensorFlow cannot end a server. When the process connects to another cluster, a second server
    starts besides it; a third one at the first address would share its port, and tasks that are
    still connected would continue to talk to the first. TensorFlow's own strategy may have started
    it.
    """
    port = split_address(address)[1]
    connections = psutil.Process().net_connections("tcp")
    listens = any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
    return listens and not _is_running(address)


def _is_running(address: str) -> bool:
    """Return whether the server already runs, from an earlier connection to the cluster."""
    definition = private.current_context()._server_def
    return definition is not None and any(
        job.name == definition.job_name and address in job.tasks.values()
        for job in definition.cluster.job
    )
