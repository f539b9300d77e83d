"""How the coordinator reaches the tasks of a job: over a network, or within its own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from tfps.cluster import ClusterSpec
from tfps.cluster.topology import Topology
from tfps.runtime.coordinator.control_plane import (
    ATTEMPT_TIMEOUT_S,
    CALL_TIMEOUT_S,
    line_closed,
)

if TYPE_CHECKING:
    from tfps.runtime.coordinator.data_plane import DataPlane
    from tfps.runtime.coordinator.server import Server

Task = tuple[str, int]  # its type and index


class ControlLine(Protocol):
    """The coordinator's own line to one task, apart from the workers' traffic.

    Attributes:
        lost: why every call raises `UnavailableError`, or None while the task answers.
        returns: asked on a failed call; waits while the task is being brought back, and answers
            whether it was.
    """

    lost: str | None
    returns: Callable[[], bool]

    def function(
        self, trace: Callable[..., Sequence[tf.Tensor]], *, arguments: int | Sequence[tf.TensorSpec]
    ) -> Callable[..., list[np.ndarray[Any, Any]]]:
        """Trace a function of the task; calling it with numbers or arrays returns arrays.

        Args:
            trace: from tensors to a list of tensors; opens every resource by name.
            arguments: how many int64 scalars it takes, or what else.
        """

    def ask(self, token: str, *values: int | bytes, patience_s: float = CALL_TIMEOUT_S) -> Any:
        """Call what the task's process has registered under a token of `transport.tokens`.

        It raises `NoSuchFunction` where the task is not a process of tfps.
        """

    def renew(self) -> None:
        """Call a task that was started anew from now on."""

    def is_reachable(self, *, timeout_s: float) -> bool:
        """Return whether the task's process is there; it may hang all the same."""

    def close(
        self, *, answering: bool = True, error: Callable[[], Exception] = line_closed
    ) -> None:
        """Close the line.

        Args:
            answering: a task that is not thought to answer is not waited for.
            error: makes what is raised of calls after that, where tasks are processes.
        """


class Connections(Protocol):
    """What a strategy is built on.

    Attributes:
        topology: the devices of the tasks.
        processes: the addresses of the tasks that have a process of their own, and can be lost;
            that of a task that has moved is another one then.
    """

    topology: Topology
    processes: Mapping[Task, str]

    def connect(self, connect_tensorflow: Callable[[], None], *, timeout_s: float) -> None:
        """Make the tasks' devices known to this process; they may take so long to answer."""

    def resolve(self) -> ClusterSpec | None:
        """Ask where the tasks are now; None: nowhere else, ever.

        It raises `ConfigError` where the answer cannot be a cluster.
        """

    def misfit(self, task: Task) -> str:
        """Let a task that was started anew serve this chief; why it cannot, else empty."""

    def move(self, task: Task, address: str) -> None:
        """Reach a task at another address from now on; its lines do once they are renewed."""

    def control(self, task: Task, *, longest_attempt_s: float = ATTEMPT_TIMEOUT_S) -> ControlLine:
        """Open a line to a task; some calls take it longer than usual."""

    def routes(
        self, *, job_id: int, servers: list[Server], lines: list[ControlLine], transport: str
    ) -> DataPlane:
        """Choose how requests reach the servers, as the ``transport`` says that the user wants."""
