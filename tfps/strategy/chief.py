"""Prepare this process to be the chief of a cluster."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfps.bridge.closures.connection import is_initialized
from tfps.bridge.functions.server_start import check_server_start
from tfps.cluster import ClusterSpec, inter_op_threads, prepare_process, wait_for_tasks
from tfps.cluster.address import loopback_problem
from tfps.terminal import announce, root_logger_as_it_was
from tfps.training.run_state import execute_synchronously
from tfps.units import count_tasks

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def prepare_chief(spec: ClusterSpec, resolver: Any, *, timeout_s: float) -> Iterator[None]:
    """Prepare this process and wait for the tasks; TensorFlow connects within the context.

    Args:
        spec: the cluster.
        resolver: the cluster resolver that TensorFlow gets.
        timeout_s: the seconds that the tasks may take to reply.

    Raises:
        ConnectTimeout: tasks did not reply in time.
        ListenError: another process holds the chief's port.
    """
    prepare_process("chief", spec)
    execute_synchronously()  # tasks take the mode over when this process connects to them
    _set_thread_counts(spec)
    share_gpus()
    workers, servers = spec.jobs["worker"], spec.jobs["ps"]
    is_listed = "chief" in resolver.cluster_spec().jobs
    if problem := loopback_problem(spec.tasks(*(() if is_listed else ("worker", "ps")))):
        logger.warning("%s: %s", spec.source, problem)
    announce(f"connecting to {count_tasks(workers=len(workers), ps=len(servers))}")
    tf.get_logger()  # makes it now: it depends on the root logger
    # TensorFlow takes a free port for a chief that is not listed.
    own_server = check_server_start(spec, "chief", 0) if is_listed else contextlib.nullcontext()
    with own_server, root_logger_as_it_was():
        wait_for_tasks(spec, timeout_s=timeout_s, report=logger.warning)
        yield


def _set_thread_counts(spec: ClusterSpec) -> None:
    """Set the number of threads of this process's server, unless TensorFlow has started."""
    if not is_initialized():
        tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads(spec, "chief"))


def share_gpus() -> None:
    """Let GPU memory grow on demand, so that the workers of this machine can use it.

    By default TensorFlow reserves nearly all free memory when it starts, and a chief computes next
    to nothing. Changes nothing if the user has configured a GPU.
    """
    if is_initialized():
        return
    gpus = tf.config.get_visible_devices("GPU")
    said = [
        gpu
        for gpu in gpus
        if tf.config.experimental.get_memory_growth(gpu) is not None
        or tf.config.get_logical_device_configuration(gpu) is not None
    ]
    if not said:  # TensorFlow requires the same setting for all
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
