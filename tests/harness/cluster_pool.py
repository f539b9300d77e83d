"""Clusters that several test modules share one after the other, so that fewer have to start."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tests.harness.leaks import ProcessSnapshot
from tfps.cluster import has_clients
from tfps.launch import LocalCluster
from tfps.launch.environment import common_environment
from tfps.launch.local_cluster import SERVED_TASK_TYPES
from tfps.launch.process import TaskProcess

# Including those in use: a task takes half a gigabyte, and a module rarely needs two sizes.
MOST_CLUSTERS = 2
OWN_VARIABLES = "PYTEST_"  # the prefix of variables that pytest sets for each test

Key: TypeAlias = tuple[int, int, frozenset[tuple[str, str]]]  # workers, servers, and variables


@dataclass(frozen=True)
class PooledCluster:
    """A cluster and its state right after its start.

    Args:
        key: the size and variables of the cluster; tests that need the same may share it.
        cluster: the cluster.
        processes: the processes of its tasks.
        resources: the processes, ports and threads that its start has added to this process.
    """

    key: Key
    cluster: LocalCluster
    processes: Mapping[tuple[str, int], TaskProcess]
    resources: ProcessSnapshot

    @classmethod
    def start(cls, key: Key, start: Callable[[], LocalCluster]) -> PooledCluster:
        """Start a cluster and record its state."""
        before = ProcessSnapshot.now()
        cluster = start()
        resources = ProcessSnapshot.now().beyond(before)
        return cls(key, cluster, _processes(cluster), resources)

    def is_as_started(self) -> bool:
        """Return whether the cluster has the tasks of its start, and no strategy uses it."""
        processes = _processes(self.cluster)
        if self.cluster.supervisor.restarts or any(
            processes[task] is not process or process.status() is not None or process.is_suspended()
            for task, process in self.processes.items()
        ):
            return False
        addresses = [address for _, _, address in self.cluster.spec.tasks(*SERVED_TASK_TYPES)]
        if has_clients(addresses):
            gc.collect()  # unused strategies may still be in reference cycles
        return not has_clients(addresses)


class ClusterPool:
    """Lends clusters, by size and variables, to tests that do not change the tasks.

    A returned cluster is kept for the next test that needs the same, unless a test has changed it.
    The number of clusters is limited: the one that was idle longest ends before a new one starts.
    """

    def __init__(self) -> None:
        self._lent: list[PooledCluster] = []
        self._idle: list[PooledCluster] = []  # the last used one at the end

    @property
    def resources(self) -> ProcessSnapshot:
        """The processes, ports and threads of its clusters, which are no leftovers of a test."""
        found = ProcessSnapshot()
        for pooled in [*self._lent, *self._idle]:
            found |= pooled.resources
        return found

    def lend(
        self,
        start: Callable[..., LocalCluster],
        *,
        workers: int,
        ps: int,
        environment: Mapping[str, str] | None = None,
    ) -> LocalCluster:
        """Return an idle cluster, or start one.

        Args:
            start: starts a cluster with the other arguments.
            workers: the number of workers.
            ps: the number of parameter servers.
            environment: further environment variables of its tasks.
        """
        key = workers, ps, _variables(environment)
        pooled = next((pooled for pooled in self._idle if pooled.key == key), None)
        if pooled is not None:
            self._idle.remove(pooled)
            if not pooled.is_as_started():  # a task may have died meanwhile
                pooled.cluster.close()
                pooled = None
        if pooled is None:
            self._end_idle(keep=MOST_CLUSTERS - 1 - len(self._lent))
            size = {"workers": workers, "ps": ps}
            pooled = PooledCluster.start(key, lambda: start(**size, environment=environment))
        self._lent.append(pooled)
        return pooled.cluster

    def take_back(self, clusters: Iterable[LocalCluster], *, keep: bool) -> None:
        """Keep returned clusters for other tests, or end them.

        Args:
            clusters: clusters that were lent.
            keep: whether the tests passed; otherwise the state of the clusters is unknown.
        """
        given = {id(cluster) for cluster in clusters}
        for pooled in [pooled for pooled in self._lent if id(pooled.cluster) in given]:
            self._lent.remove(pooled)
            if keep and pooled.is_as_started():
                self._idle.append(pooled)
            else:
                pooled.cluster.close()
        self._end_idle(keep=MOST_CLUSTERS - len(self._lent))

    def end_idle(self) -> None:
        """End all idle clusters."""
        self._end_idle(keep=0)

    def close(self) -> None:
        """End all clusters."""
        self.take_back([pooled.cluster for pooled in self._lent], keep=False)
        self.end_idle()

    def _end_idle(self, *, keep: int) -> None:
        while len(self._idle) > max(0, keep):
            self._idle.pop(0).cluster.close()


def _processes(cluster: LocalCluster) -> dict[tuple[str, int], TaskProcess]:
    tasks = [(task_type, index) for task_type, index, _ in cluster.spec.tasks(*SERVED_TASK_TYPES)]
    found = {task: cluster.process(task) for task in tasks}
    return {task: process for task, process in found.items() if process is not None}


def _variables(environment: Mapping[str, str] | None) -> frozenset[tuple[str, str]]:
    """Return the environment variables that the tasks of a cluster would get now."""
    base = {name: of for name, of in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    return frozenset(common_environment(base=base, extra=environment).items())
