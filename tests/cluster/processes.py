"""Clusters with processes that know nothing of tfps, or are reached indirectly."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from tests.harness.command import Command
from tfps.cluster import accepts_connections, lease_ports

SERVER = """
import json, os, sys
sys.modules["keras"] = None  # a quarter of TensorFlow's import, nothing to a server
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
options = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=8)
tf.distribute.Server(
    config["cluster"], job_name=config["task"]["type"], task_index=config["task"]["index"],
    config=options,
).join()
"""
OURS = [sys.executable, "-m", "tfps", "serve"]
Task = tuple[str, int]
Jobs = dict[str, list[str]]


@contextlib.contextmanager
def cluster_of_processes(
    folder: Path,
    tasks: Sequence[Task],
    *,
    plain: Collection[Task],
    behind: Mapping[Task, tuple[str, str]] | None = None,
) -> Iterator[Jobs]:
    """Start workers and servers; yield the addresses by job.

    Args:
        folder: for a script.
        tasks: in the order of their indices.
        plain: those that are a `tf.distribute.Server` and nothing else.
        behind: (the address that all others know, its own) of tasks that are reached indirectly.
    """
    script = folder / "server.py"
    script.write_text(SERVER)
    behind = behind or {}
    with lease_ports(len(tasks) + 1) as lease:
        leased = [f"127.0.0.1:{port}" for port in lease.ports]
    jobs: Jobs = {"chief": [leased.pop()], "worker": [], "ps": []}
    known = [behind.get(t, (a,))[0] for t, a in zip(tasks, leased, strict=True)]
    for (task_type, _), address in zip(tasks, known, strict=True):
        jobs[task_type].append(address)
    with contextlib.ExitStack() as stack:
        commands = []
        for task_type, index in tasks:
            own = json.loads(json.dumps(jobs))
            if (task_type, index) in behind:
                own[task_type][index] = behind[task_type, index][1]
            config = {"cluster": own, "task": {"type": task_type, "index": index}}
            arguments = [sys.executable, str(script)] if (task_type, index) in plain else OURS
            command = Command(
                arguments, deadline_s=200, environment={"TF_CONFIG": json.dumps(config)}
            )
            commands.append(stack.enter_context(command))
        deadline = time.monotonic() + 90
        while not all(
            accepts_connections(behind.get(t, (a, a))[1]) for t, a in zip(tasks, known, strict=True)
        ):
            assert time.monotonic() < deadline, "the servers did not start"
            time.sleep(0.2)
        yield jobs
        for command in commands:
            command.send(signal.SIGKILL)


def resolver_of(jobs: Jobs) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Return the resolver that a chief's script passes to its strategy."""
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(jobs), task_type="chief", task_id=0, rpc_layer="grpc"
    )
