"""How many threads a task's TensorFlow runtime needs so that waiting calls never starve it."""

from __future__ import annotations

import os

from tfps.cluster.spec import ClusterSpec

FEWEST_THREADS = 8  # measured: 8 was enough for small clusters and cost nothing when idle
SPARE_THREADS = 2  # beside one waiting call per peer: one to compute, one to answer the coordinator


def inter_op_threads(spec: ClusterSpec, task_type: str) -> int:
    """Return `inter_op_parallelism_threads` for a task: a waiting call holds one thread.

    A server answers every worker and a worker asks every server at the same time, so fewer
    threads than peers end in a deadlock.

    Example:

    >>> spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": tuple(f"w{i}:1" for i in range(90)),
    ...                          "ps": ("p:1",)})
    >>> inter_op_threads(spec, "ps") >= 92
    True
    """
    peers = spec.count("worker" if task_type == "ps" else "ps")
    return max(FEWEST_THREADS, peers + SPARE_THREADS, os.cpu_count() or 1)
