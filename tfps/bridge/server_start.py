"""The start of TensorFlow's own server in this process, with errors that name the port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.cluster.listening import check_listening, failed_to_listen
from tfps.cluster.spec import ClusterSpec

NOT_STARTED = "Could not start gRPC server"


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
    if not _runs(spec.address(task_type, task_index)):
        check_listening(spec, task_type, task_index)
    try:
        yield
    except tf.errors.UnknownError as error:
        if NOT_STARTED not in error.message:
            raise
        raise failed_to_listen(spec, task_type, task_index, error.message) from None


def _runs(address: str) -> bool:
    """Whether the server is there already, from an earlier connection to the cluster."""
    definition = private.current_context()._server_def
    if definition is None:
        return False
    return any(
        job.name == definition.job_name and address in job.tasks.values()
        for job in definition.cluster.job
    )
