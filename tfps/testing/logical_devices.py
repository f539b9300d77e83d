"""Logical devices of this process's CPU, one for each task of an `InProcessCluster`."""

from __future__ import annotations

import os

import tensorflow as tf

from tfps.bridge.closures.connection import is_initialized
from tfps.cluster.topology import Topology
from tfps.errors import ConfigError

# Threads besides those of waiting requests: for computations and requests of the coordinator.
SPARE_THREADS = 4


def reserve(*, workers: int, ps: int) -> None:
    """Configure TensorFlow with the devices and threads that tasks need, without starting it.

    Args:
        workers: the number of workers.
        ps: the number of servers.

    Raises:
        ConfigError: TensorFlow has already started, with fewer devices or threads.
    """
    if is_initialized():
        topology_for(workers=workers, ps=ps)
    else:
        _configure(devices=_devices(workers, ps), threads=_threads(workers, ps))


def topology_for(*, workers: int, ps: int) -> Topology:
    """Return the devices of a chief, workers and servers; starts TensorFlow.

    Args:
        workers: the number of workers.
        ps: the number of servers.

    Raises:
        ConfigError: TensorFlow has started with too few devices or threads.
    """
    devices, threads = _devices(workers, ps), _threads(workers, ps)
    if not is_initialized():
        _configure(devices=devices, threads=threads)
    found = _own_devices()
    has_threads = tf.config.threading.get_inter_op_parallelism_threads() or os.cpu_count() or 1
    if len(found) < devices or has_threads < threads:
        raise ConfigError(
            f"workers={workers}, ps={ps}: TensorFlow has started with {len(found)} logical devices "
            f"and {has_threads} inter-op threads, expected {devices} and {threads}; make the "
            "InProcessCluster, or call "
            f"tfps.testing.InProcessCluster.reserve(workers={workers}, ps={ps}), before anything "
            "else uses TensorFlow, for example at the top of conftest.py",
            source="InProcessCluster",
        )
    return Topology.of_devices(found[:devices], workers=workers)


def _devices(workers: int, ps: int) -> int:
    return 1 + workers + ps


def _threads(workers: int, ps: int) -> int:
    """Return the number of threads that waiting calls of workers and servers may block."""
    return workers * (1 + ps) + SPARE_THREADS


def _configure(*, devices: int, threads: int) -> None:
    """Configure at least these numbers of devices and threads."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    known = tf.config.get_logical_device_configuration(cpu) or []
    missing = devices - len(known)
    if missing > 0:
        more = [tf.config.LogicalDeviceConfiguration() for _ in range(missing)]
        tf.config.set_logical_device_configuration(cpu, [*known, *more])
    if tf.config.threading.get_inter_op_parallelism_threads() < threads:
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def _own_devices() -> list[str]:
    """Return the full names of this process's CPUs; starts TensorFlow.

    In a process that is a task of a cluster, TensorFlow lists those of the other tasks as well.
    """
    names = [device.name for device in tf.config.list_logical_devices("CPU")]
    with tf.device("CPU:0"):
        task, _, _ = tf.constant(0).device.rpartition("/device:")
    own = [name.removeprefix(task) for name in names]
    return [f"{task}{name}" for name in own if name.startswith("/device:")]
