"""The coordinator's connections to a job's tasks: over a network, or within its own process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from tfps.cluster import ClusterSpec
from tfps.cluster.topology import Topology
from tfps.runtime.coordinator.control_plane import (
    ATTEMPT_TIMEOUT_S,
    CALL_TIMEOUT_S,
    make_channel_closed_error,
)

if TYPE_CHECKING:
    from tfps.runtime.coordinator.data_plane import DataPlane
    from tfps.runtime.coordinator.server import Server

Task = tuple[str, int]  # the type and the index of a task


class ControlChannel(Protocol):
    """The coordinator's own connection to one task, apart from the workers' traffic.

    Attributes:
        lost: the reason why every call raises `UnavailableError`; None while the task replies.
        wait_for_return: called after a failed call; waits while the task is brought back, and
            returns whether it was.
    """

    lost: str | None
    wait_for_return: Callable[[], bool]

    def make_function(
        self, trace: Callable[..., Sequence[tf.Tensor]], *, arguments: int | Sequence[tf.TensorSpec]
    ) -> Callable[..., list[np.ndarray[Any, Any]]]:
        """Trace a function of the task; calling it with numbers or arrays returns arrays.

        Args:
            trace: from tensors to a list of tensors; opens every resource by name.
            arguments: the number of int64 scalars that it takes, or the specs of its arguments.
        """

    def ask(self, token: str, *values: int | bytes, patience_s: float = CALL_TIMEOUT_S) -> Any:
        """Call the function that the task's process has registered under a token.

        Raises `NoSuchFunction` if the task is not a process of tfps.
        """

    def renew(self) -> None:
        """Reconnect to a restarted task."""

    def is_reachable(self, *, timeout_s: float) -> bool:
        """Return whether the task's process accepts connections; it may hang nevertheless."""

    def close(
        self,
        *,
        is_responding: bool = True,
        error: Callable[[], Exception] = make_channel_closed_error,
    ) -> None:
        """Close the channel.

        Args:
            is_responding: whether the task is expected to reply; if not, do not wait for it.
            error: makes the exception that later calls raise, if tasks are processes.
        """


class Connections(Protocol):
    """The connections on which a strategy is built.

    Attributes:
        topology: the devices of the tasks.
        processes: the current addresses of the tasks that have a process of their own, and can be
            lost.
    """

    topology: Topology
    processes: Mapping[Task, str]

    def connect(self, connect_tensorflow: Callable[[], None], *, timeout_s: float) -> None:
        """Connect this process to the tasks' devices; wait for at most ``timeout_s``."""

    def resolve(self) -> ClusterSpec | None:
        """Return the present addresses of all tasks; None if tasks never move.

        Raises `ConfigError` if the result cannot be a cluster.
        """

    def report_alive(self, tasks: Collection[Task]) -> None:
        """Report which tasks are held alive, so that no other one gets their places."""

    def find_incompatibility(self, task: Task) -> str:
        """Let a restarted task serve this chief; return why it cannot, or an empty string."""

    def set_address(self, task: Task, address: str) -> None:
        """Set the address of a task; its open channels use it after `renew`."""

    def open_channel(
        self, task: Task, *, longest_attempt_s: float = ATTEMPT_TIMEOUT_S
    ) -> ControlChannel:
        """Open a channel to a task, for calls of at most ``longest_attempt_s``."""

    def create_data_plane(
        self, *, job_id: int, servers: list[Server], channels: list[ControlChannel], transport: str
    ) -> DataPlane:
        """Create the data plane for the ``transport`` that the user has set."""
