"""How the coordinator reaches the tasks of a job: over a network, or within its own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from tfps.cluster.topology import Topology
from tfps.runtime.coordinator.server_contents import ServedPlan
from tfps.transport.carrier import Carrier

if TYPE_CHECKING:
    from tfps.runtime.coordinator.server import Server

Task = tuple[str, int]  # its type and index


class ControlLine(Protocol):
    """The coordinator's own line to one task, apart from the workers' traffic.

    Attributes:
        lost: why every call raises `UnavailableError`, or None while the task answers.
    """

    lost: str | None

    def function(
        self, trace: Callable[..., Sequence[tf.Tensor]], *, arguments: int | Sequence[tf.TensorSpec]
    ) -> Callable[..., list[np.ndarray[Any, Any]]]:
        """Trace a function of the task; calling it with numbers or arrays returns arrays."""

    def process_function(
        self, token: str, *, arguments: Sequence[tf.DType], result: tf.DType
    ) -> Callable[..., Any]:
        """Return what calls a Python function that the task's process has registered."""

    def is_reachable(self, *, timeout_s: float) -> bool:
        """Return whether the task's process is there; it may hang all the same."""

    def close(self, *, answering: bool = True) -> None:
        """Close the line."""


class RequestRoutes(Protocol):
    """How the workers' requests reach the servers, and what the servers serve.

    Attributes:
        direct_workers: for each worker whether its requests do without TensorFlow's RPC.
        carriers: for each server the name of the carrier that brings requests to it.
    """

    direct_workers: tuple[bool, ...]
    carriers: tuple[str, ...]

    @property
    def carrier(self) -> Carrier:
        """For functions that any worker, or the coordinator, may run."""

    def carrier_of(self, worker: int) -> Carrier:
        """For functions that one worker runs."""

    def install(self, server: Server, plan: ServedPlan) -> None:
        """Let a server serve a plan."""

    def forget(self, plans: Sequence[tuple[int, int]]) -> None:
        """Free what servers hold for (server, plan)s that nobody uses any more."""

    def last_failures(self) -> str:
        """Return what servers and workers say of their last failures."""

    def error_of(self, server: int, plan_id: int) -> tf.errors.OpError | None:
        """Return what a server's function raised just now while it served a plan, or None."""

    def hang_up(self, server: int) -> None:
        """End the exchanges of all workers with a server that does not answer."""

    def close(self) -> None:
        """Let all servers forget the job."""


class Connections(Protocol):
    """What a strategy is built on.

    Attributes:
        topology: the devices of the tasks.
        processes: the addresses of the tasks that have a process of their own, and can be lost.
    """

    topology: Topology
    processes: Mapping[Task, str]

    def connect(self, connect_tensorflow: Callable[[], None], *, timeout_s: float) -> None:
        """Make the devices of the tasks known to this process.

        Args:
            connect_tensorflow: how TensorFlow connects to a cluster.
            timeout_s: how long the tasks may take to answer.
        """

    def control(
        self,
        task: Task,
        *,
        to_any_incarnation: bool = False,
        longest_attempt_s: float | None = None,
    ) -> ControlLine:
        """Open a line to a task.

        Args:
            task: which one.
            to_any_incarnation: a task that was started anew answers as well.
            longest_attempt_s: for calls that take a task longer than usual.
        """

    def routes(
        self,
        *,
        job_id: int,
        servers: Sequence[Server],
        worker_lines: Sequence[ControlLine],
        transport: str,
    ) -> RequestRoutes:
        """Choose how requests reach the servers.

        Args:
            job_id: goes into every message.
            servers: all of them.
            worker_lines: the coordinator's line to each worker.
            transport: ``"auto"``, ``"direct"`` or ``"grpc"``.
        """
