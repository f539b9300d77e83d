"""A task that another process serves: one with other versions."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from tfps.cluster import wait_for_tasks
from tfps.launch import LocalCluster
from tfps.launch.environment import task_environment

DEADLINE_S = 90
SERVE = """
import os
import tfps
from tfps.launch import serving
{}
os._exit(serving.serve())
"""


@contextlib.contextmanager
def another(
    cluster: LocalCluster,
    kind: str,
    index: int,
    change: str = "",
    *,
    python: str = sys.executable,
    deadline_s: float = DEADLINE_S,
) -> Iterator[None]:
    """Let a task be served by a process with other versions, instead of the cluster's own."""
    cluster.kill(kind, index)
    process = subprocess.Popen(
        [python, "-c", SERVE.format(change)],
        env={**os.environ, **task_environment(cluster.spec, kind, index)},
    )
    try:
        wait_for_tasks(cluster.spec, timeout_s=deadline_s, task_types=[kind], index=index)
        yield
    finally:
        process.kill()
        process.wait()
