"""How many threads a task's TensorFlow runtime needs so that waiting calls never starve it."""

from __future__ import annotations

import os

from tfps.cluster.spec import ClusterSpec

FEWEST_CONNECTIONS = 12  # a small cluster tries many things
# Of tasks that compute no steps: what is idle costs nothing.
FEWEST_THREADS = 8
# Beside the waiting calls: to compute, and to answer the coordinator.
SPARE_THREADS = 4
# Each of a worker's connections to a server keeps a thread of it waiting, and a worker has one per
# plan that it works on: training, evaluation, a custom loop.
CONNECTIONS_PER_WORKER = 2


def inter_op_threads(spec: ClusterSpec, task_type: str) -> int:
    """Return `inter_op_parallelism_threads` for a task: a waiting call holds one thread.

    A server answers every worker and a worker asks every server at the same time, so fewer
    threads than peers end in a deadlock. A worker has no more than it needs: with eight threads on
    two cores a step of convolutions, of which several then run at the same time, took a tenth more
    of its CPU than with five.

    Example:

    >>> spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": tuple(f"w{i}:1" for i in range(90)),
    ...                          "ps": ("p:1",)})
    >>> inter_op_threads(spec, "ps") >= 92
    True
    """
    waiting = data_connections(spec) if task_type == "ps" else spec.count("ps")
    fewest = 1 if task_type == "worker" else FEWEST_THREADS
    return max(fewest, waiting + SPARE_THREADS, os.cpu_count() or 1)


def data_connections(spec: ClusterSpec) -> int:
    """Return how many connections of `direct` a parameter server keeps.

    Example:

    >>> spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
    >>> data_connections(spec) <= inter_op_threads(spec, "ps") - SPARE_THREADS
    True
    """
    clients = spec.count("worker") + 1  # the coordinator
    return max(FEWEST_CONNECTIONS, CONNECTIONS_PER_WORKER * clients)
