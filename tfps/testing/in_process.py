"""The connections of a job whose tasks are devices of this process."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.closures.remote_value import patch_fetch_without_cluster
from tfps.bridge.functions.server_function import trace_server_function
from tfps.cluster import ClusterSpec
from tfps.cluster.topology import Topology
from tfps.runtime.coordinator.connections import ControlChannel, Task
from tfps.runtime.coordinator.control_plane import (
    ATTEMPT_TIMEOUT_S,
    CALL_TIMEOUT_S,
    WORKING_SERVER_ERRORS,
    NoSuchFunction,
    is_bringing_back,
    make_channel_closed_error,
    never_returns,
    to_signature,
)
from tfps.runtime.coordinator.data_plane import DataPlane
from tfps.runtime.coordinator.server import Server
from tfps.transport.carrier import InProcessCarrier

# The pause before a channel repeats a call that TensorFlow has cancelled.
RETRY_S = 0.01


class InProcessConnections:
    """The connections to devices of this process, which act as tasks with own resources.

    Args:
        topology: the devices.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.processes: Mapping[Task, str] = {}

    def connect(self, connect_tensorflow: Callable[[], None], *, timeout_s: float) -> None:
        """Make results fetchable; there is no other process to connect to."""
        patch_fetch_without_cluster()

    def resolve(self) -> ClusterSpec | None:
        """Return None: there is no cluster of processes."""
        return None

    def report_alive(self, tasks: Collection[Task]) -> None:
        """Do nothing: no scheduler gives places."""

    def find_incompatibility(self, task: Task) -> str:
        """Return an empty text: a device never changes."""
        return ""

    def set_address(self, task: Task, address: str) -> None:
        """Do nothing: a device does not move."""

    def open_channel(
        self, task: Task, *, longest_attempt_s: float = ATTEMPT_TIMEOUT_S
    ) -> ControlChannel:
        """Return a channel to a device."""
        kind, index = task
        topology = self.topology
        return DeviceChannel(topology.worker(index) if kind == "worker" else topology.server(index))

    def create_data_plane(
        self, *, job_id: int, servers: list[Server], channels: list[ControlChannel], transport: str
    ) -> DataPlane:
        """Return the data plane between devices; ignores the transport, as there is no network."""
        return DataPlane(
            job_id=job_id,
            servers=servers,
            channels=channels,
            transport="grpc",  # no server of `direct` runs
            plain_carrier=InProcessCarrier(),
        )


class DeviceChannel:
    """Calls functions of a device from any thread.

    Args:
        device: the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self.lost: str | None = None
        self.wait_for_return: Callable[[], bool] = never_returns

    def make_function(
        self, trace: Callable[..., Sequence[tf.Tensor]], *, arguments: int | Sequence[tf.TensorSpec]
    ) -> Callable[..., list[np.ndarray[Any, Any]]]:
        """Return a function that runs on the device, from numbers or arrays to arrays.

        It is traced at its first call, since a trace cannot wait for a lost task here.
        """
        signature, lock = to_signature(arguments), threading.Lock()

        @functools.cache
        def traced() -> Any:
            with tf.init_scope():
                return trace_server_function(trace, device=self._device, signature=signature)

        def call(*values: Any, **_: float) -> list[np.ndarray[Any, Any]]:
            if self.lost is not None and not is_bringing_back():
                raise tf.errors.UnavailableError(None, None, self.lost)
            with lock:
                concrete = traced()
            deadline_s = time.monotonic() + CALL_TIMEOUT_S
            while True:
                try:
                    with tf.init_scope(), tf.device(self._device):
                        pairs = zip(values, signature, strict=True)
                        inputs = [tf.constant(value, spec.dtype) for value, spec in pairs]
                        return [output.numpy() for output in concrete(*inputs)]
                except WORKING_SERVER_ERRORS:
                    raise
                except tf.errors.OpError as error:  # as on the channel to a process
                    # With the closure of another thread TensorFlow may also cancel this call,
                    # before it starts or while it waits for a mutex. It was not meant.
                    is_own_error = not isinstance(error, tf.errors.CancelledError)
                    if is_own_error or time.monotonic() > deadline_s:
                        raise tf.errors.UnavailableError(
                            None, None, f"{self._device} does not respond: {error.message}"
                        ) from error
                    time.sleep(RETRY_S)

        return call

    def ask(self, token: str, *values: int | bytes, patience_s: float = CALL_TIMEOUT_S) -> Any:
        """Raise `NoSuchFunction`: a device has no registered functions."""
        raise NoSuchFunction(f"{self._device} has no function {token}")

    def renew(self) -> None:
        """Do nothing: a device never restarts."""

    def is_reachable(self, *, timeout_s: float) -> bool:
        """Return True: the device exists as long as this process."""
        return True

    def close(
        self,
        *,
        is_responding: bool = True,
        error: Callable[[], Exception] = make_channel_closed_error,
    ) -> None:
        """Do nothing: a channel has no resources."""
