"""The connections to a cluster of processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tfps.bridge.closures.connection import is_connected_with, lock_connection
from tfps.cluster import ClusterSpec
from tfps.cluster.introduction import this_chief
from tfps.cluster.topology import Topology
from tfps.recovery.probing.liveness import ProbePolicy
from tfps.runtime.coordinator.connections import Connections, ControlChannel, Task
from tfps.runtime.coordinator.control_plane import ATTEMPT_TIMEOUT_S, ControlPlane
from tfps.runtime.coordinator.data_plane import DataPlane
from tfps.runtime.coordinator.server import Server
from tfps.scheduler.client import find_scheduler
from tfps.strategy.chief import prepare_chief
from tfps.strategy.take_tasks import confirm_tasks, take_restarted_task, take_tasks
from tfps.transport.carrier import GrpcCarrier

_newest: dict[str, Mapping[Any, str]] = {}  # the processes of the newest connection's tasks


class ClusterConnections:
    """The network connections of a chief to its tasks, which are TensorFlow servers.

    Args:
        spec: the cluster.
        resolver: the cluster resolver that TensorFlow gets.
        job: the name of the strategy's job; empty for a job without a name.
    """

    def __init__(self, spec: ClusterSpec, *, resolver: Any, job: str = "") -> None:
        self._spec, self._resolver, self._job = spec, resolver, job
        self._scheduler = find_scheduler(spec)
        self._own_identity = this_chief(job=job)
        self.topology = Topology.of_tasks(workers=spec.count("worker"), servers=spec.count("ps"))
        self._addresses = {
            (kind, index): address for kind, index, address in spec.tasks("worker", "ps")
        }
        self.processes: Mapping[Task, str] = self._addresses

    def connect(self, connect_tensorflow: Callable[[], None], *, timeout_s: float) -> None:
        """Wait for the tasks, take them for this chief, and connect TensorFlow to them.

        Raises:
            ConnectTimeout: tasks did not reply in time.
            TasksInUse: the tasks serve another chief.
            ListenError: another process holds the chief's port.
        """
        with prepare_chief(self._spec, self._resolver, timeout_s=timeout_s), lock_connection():
            policy = ProbePolicy.from_environment()
            found = take_tasks(self._spec, job=self._job, policy=policy, timeout_s=timeout_s)
            is_same = is_connected_with(self._spec.jobs) and found == _newest.get("processes")
            if not (is_same and all(found.values())):  # TensorFlow keeps four threads each time
                _newest.clear()  # until it has succeeded
                connect_tensorflow()
                _newest["processes"] = found
        self._own_identity = confirm_tasks(self._spec, job=self._job, timeout_s=timeout_s)

    def resolve(self) -> ClusterSpec:
        """Return the present cluster, as the scheduler has told it, or else the resolver does.

        Raises:
            ConfigError: the cluster is invalid.
        """
        if self._scheduler is not None:
            return self._scheduler.cluster
        return ClusterSpec.from_resolver(self._resolver)

    def report_alive(self, tasks: Collection[Task]) -> None:
        """Tell the scheduler, if there is one, which tasks this chief holds alive."""
        if self._scheduler is not None:
            self._scheduler.tell(alive=sorted(tasks))

    def find_incompatibility(self, task: Task) -> str:
        """Ask a restarted task to serve this chief; return why it cannot, or an empty string."""
        return take_restarted_task((*task, self.processes[task]), self._own_identity)

    def set_address(self, task: Task, address: str) -> None:
        """Use another address for a task from now on."""
        self._addresses[task] = address

    def open_channel(
        self, task: Task, *, longest_attempt_s: float = ATTEMPT_TIMEOUT_S
    ) -> ControlChannel:
        """Return a TensorFlow session with one task."""
        kind, index = task
        devices = self.topology.workers if kind == "worker" else self.topology.servers
        return ControlPlane(
            address=lambda: self.processes[task],
            device=devices[index],
            # Workers keep no state that a call could miss.
            accepts_restarted_task=kind == "worker",
            longest_attempt_s=longest_attempt_s,
        )

    def create_data_plane(
        self, *, job_id: int, servers: list[Server], channels: list[ControlChannel], transport: str
    ) -> DataPlane:
        """Return the data plane: direct connections between tfps processes, or TensorFlow's RPC."""
        return DataPlane(
            job_id=job_id,
            servers=servers,
            channels=channels,
            transport=transport,
            plain_carrier=GrpcCarrier(),
        )


def get_or_make_connections(resolver: Any, spec: ClusterSpec, *, job: str = "") -> Connections:
    """Return the connections of a simulated cluster's resolver, or make them for a real cluster.

    Args:
        resolver: the strategy's resolver; that of `tfps.testing.InProcessCluster` has connections.
        spec: the cluster that it describes.
        job: the name of the strategy's job; empty for a job without a name.
    """
    resolver_connections: Connections | None = getattr(resolver, "tfps_connections", None)
    return resolver_connections or ClusterConnections(spec, resolver=resolver, job=job)
