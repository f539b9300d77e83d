"""How this process becomes the chief of a cluster."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfps.bridge.closures.connection import is_initialized
from tfps.bridge.functions.server_start import server_start
from tfps.cluster import ClusterSpec, inter_op_threads, prepare_process, wait_for_tasks
from tfps.terminal import announce, root_logger_as_it_was
from tfps.units import count_tasks

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def chief_start(spec: ClusterSpec, resolver: Any, *, timeout_s: float) -> Iterator[None]:
    """Wait for the tasks; while it is open, TensorFlow may connect to them.

    Args:
        spec: the cluster.
        resolver: what TensorFlow is given for it.
        timeout_s: how long the tasks may take to answer.

    Raises:
        ConnectTimeout: tasks that did not answer in time.
        PortInUse: the chief's port is held by another process.
    """
    prepare_process("chief")
    _set_threads(spec)
    _share_gpus()
    workers, servers = spec.jobs["worker"], spec.jobs["ps"]
    announce(f"connecting to {count_tasks(workers=len(workers), ps=len(servers))}")
    tf.get_logger()  # which is made at its first use, to suit the root logger
    with _own_server(spec, resolver), root_logger_as_it_was():
        wait_for_tasks(spec, timeout_s=timeout_s, report=logger.warning)
        yield


def _own_server(spec: ClusterSpec, resolver: Any) -> contextlib.AbstractContextManager[None]:
    """While it is open, this process's own server may start."""
    if "chief" in resolver.cluster_spec().jobs:
        return server_start(spec, "chief", 0)
    return contextlib.nullcontext()  # TensorFlow takes a port that is free


def _set_threads(spec: ClusterSpec) -> None:
    """Give this process's own server enough threads; too late once TensorFlow has started."""
    if not is_initialized():
        tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads(spec, "chief"))


def _share_gpus() -> None:
    """Leave the memory of this machine's GPUs to its workers; a chief takes what it comes to need.

    Otherwise TensorFlow takes nearly all that is free when it starts, for a process that computes
    next to nothing. Where the user has said anything about GPUs, that stays as it is.
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
    if not said:  # TensorFlow wants the same of all
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
