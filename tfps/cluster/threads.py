"""The number of threads that a task's TensorFlow runtime needs so that waiting cannot block it."""

from __future__ import annotations

import os

from tfps.cluster.spec import ClusterSpec

MIN_CONNECTIONS = 12  # in a small cluster many plans may be tried
# For tasks that compute no steps, where idle threads cost nothing.
MIN_THREADS = 8
# Threads besides those of waiting calls: for computations and requests of the coordinator.
SPARE_THREADS = 4
# Each connection of a worker keeps a thread of the server waiting, and a worker has one connection
# per plan that it runs: training, evaluation, a custom loop.
CONNECTIONS_PER_WORKER = 2


def inter_op_threads(spec: ClusterSpec, task_type: str) -> int:
    """Return `inter_op_parallelism_threads` for a task, where each waiting call blocks one thread.

    A server replies to all workers, and a worker calls all servers, at the same time, so fewer
    threads than peers cause a deadlock. Over `direct` a worker calls all servers from one thread,
    so a step on one thread finds threads for its conditions (`executor_choice.MAX_DEPTH`). Under
    `AllReduce` the call that waits for other workers ends before those to servers begin. A worker
    gets no more than it needs: with eight threads on two cores a step of convolutions, of which
    several then run at once, took up to a tenth more CPU than with five.

    Example:

    >>> spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": tuple(f"w{i}:1" for i in range(90)),
    ...                          "ps": ("p:1",)})
    >>> inter_op_threads(spec, "ps") >= 92
    True
    """
    waiting = data_connections(spec) if task_type == "ps" else spec.count("ps")
    fewest = 1 if task_type == "worker" else MIN_THREADS
    return max(fewest, waiting + SPARE_THREADS, os.cpu_count() or 1)


def data_connections(spec: ClusterSpec) -> int:
    """Return the largest number of `direct` connections of a parameter server.

    Example:

    >>> spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
    >>> data_connections(spec) <= inter_op_threads(spec, "ps") - SPARE_THREADS
    True
    """
    clients = spec.count("worker") + 1  # the coordinator
    return max(MIN_CONNECTIONS, CONNECTIONS_PER_WORKER * clients)
