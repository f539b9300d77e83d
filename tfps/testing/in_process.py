"""The connections of a job whose tasks are devices of this process."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.closures.remote_value import fetch_without_a_cluster
from tfps.bridge.functions.server_function import server_function
from tfps.cluster import ClusterSpec
from tfps.cluster.topology import Topology
from tfps.runtime.coordinator.connections import ControlLine, Task
from tfps.runtime.coordinator.control_plane import (
    ANSWERS,
    ATTEMPT_TIMEOUT_S,
    CALL_TIMEOUT_S,
    NoSuchFunction,
    brings_back,
    line_closed,
    never,
    signature_of,
)
from tfps.runtime.coordinator.data_plane import DataPlane
from tfps.runtime.coordinator.server import Server
from tfps.transport.carrier import InProcessCarrier

# How long a line waits before it repeats a call that TensorFlow has cancelled.
RETRY_S = 0.01


class InProcessConnections:
    """To devices of this process, each with resources of its own, as servers of TensorFlow have.

    Args:
        topology: the devices.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.processes: Mapping[Task, str] = {}

    def connect(self, connect_tensorflow: Callable[[], None], *, timeout_s: float) -> None:
        """Nothing is elsewhere, so TensorFlow connects to nothing."""
        fetch_without_a_cluster()

    def resolve(self) -> ClusterSpec | None:
        """The devices of a process are nowhere else."""
        return None

    def misfit(self, task: Task) -> str:
        """A device is what it was."""
        return ""

    def move(self, task: Task, address: str) -> None:
        """A device stays where it is."""

    def control(self, task: Task, *, longest_attempt_s: float = ATTEMPT_TIMEOUT_S) -> ControlLine:
        """A line to a device."""
        kind, index = task
        topology = self.topology
        return DeviceLine(topology.worker(index) if kind == "worker" else topology.server(index))

    def routes(
        self, *, job_id: int, servers: list[Server], lines: list[ControlLine], transport: str
    ) -> DataPlane:
        """From device to device, whatever the transport: there is no network between them."""
        return DataPlane(
            job_id=job_id,
            servers=servers,
            lines=lines,
            transport="grpc",  # nothing is direct
            plain_carrier=InProcessCarrier(),
        )


class DeviceLine:
    """Calls functions of a device from any thread.

    Args:
        device: which one.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self.lost: str | None = None
        self.returns: Callable[[], bool] = never

    def function(
        self, trace: Callable[..., Sequence[tf.Tensor]], *, arguments: int | Sequence[tf.TensorSpec]
    ) -> Callable[..., list[np.ndarray[Any, Any]]]:
        """A function of the device; calling it with numbers or arrays returns arrays.

        It is traced when it is called first: here nothing can be lost that a trace would wait for.
        """
        signature, lock = signature_of(arguments), threading.Lock()

        @functools.cache
        def traced() -> Any:
            with tf.init_scope():
                return server_function(trace, device=self._device, signature=signature)

        def call(*values: Any, **_: float) -> list[np.ndarray[Any, Any]]:
            if self.lost is not None and not brings_back():
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
                except ANSWERS:
                    raise
                except tf.errors.OpError as error:  # as the line to a process has it
                    # What one thread calls TensorFlow cancels with the closure of another one,
                    # before it starts or while it waits for a mutex: nobody meant this call.
                    meant = not isinstance(error, tf.errors.CancelledError)
                    if meant or time.monotonic() > deadline_s:
                        raise tf.errors.UnavailableError(
                            None, None, f"{self._device} does not answer: {error.message}"
                        ) from error
                    time.sleep(RETRY_S)

        return call

    def ask(self, token: str, *values: int | bytes, patience_s: float = CALL_TIMEOUT_S) -> Any:
        """A device is no process, and has registered nothing."""
        raise NoSuchFunction(f"{self._device} has no function {token}")

    def renew(self) -> None:
        """A device is never another one."""

    def is_reachable(self, *, timeout_s: float) -> bool:
        """As long as this process runs."""
        return True

    def close(
        self, *, answering: bool = True, error: Callable[[], Exception] = line_closed
    ) -> None:
        """A line is nothing but a name."""
