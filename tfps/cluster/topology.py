"""TensorFlow's names of the devices of a job's tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfps.errors import ConfigError


@dataclass(frozen=True)
class Topology:
    """The full names of the devices of all tasks.

    Args:
        chief: the coordinator's own device.
        workers: the first device of each worker.
        servers: the device of each parameter server.
        worker_scopes: the device scope of the functions of each worker, for operations without a
            device of their own: one of its devices, or the whole task.

    Raises:
        ConfigError: two tasks have the same device.

    Example:

    >>> topology = Topology.of_tasks(workers=2, servers=1)
    >>> topology.worker(1)
    '/job:worker/replica:0/task:1/device:CPU:0'
    """

    chief: str
    workers: tuple[str, ...]
    servers: tuple[str, ...]
    worker_scopes: tuple[str, ...]

    def __post_init__(self) -> None:
        devices = [self.chief, *self.workers, *self.servers]
        if len(set(devices)) < len(devices):
            raise ConfigError(
                f"received the devices {devices}, expected a different device for each task",
                source="Topology",
            )

    @classmethod
    def of_tasks(cls, *, workers: int, servers: int) -> Topology:
        """Return the devices of a cluster whose tasks are TensorFlow servers.

        Args:
            workers: the number of workers.
            servers: the number of parameter servers.
        """
        return cls(
            chief=_device_name("chief", 0),
            workers=tuple(_device_name("worker", index) for index in range(workers)),
            servers=tuple(_device_name("ps", index) for index in range(servers)),
            worker_scopes=tuple(_task_name("worker", index) for index in range(workers)),
        )

    @classmethod
    def of_devices(cls, devices: Sequence[str], *, workers: int) -> Topology:
        """Return the devices of tasks that share a process, each on its own logical device.

        Args:
            devices: the devices of the chief, the workers and the servers, in this order.
            workers: the number of workers.

        Example:

        >>> Topology.of_devices(["CPU:0", "CPU:1", "CPU:2"], workers=1).servers
        ('CPU:2',)
        """
        chief, *others = devices
        of_workers = tuple(others[:workers])
        return cls(chief, of_workers, tuple(others[workers:]), worker_scopes=of_workers)

    def worker(self, index: int) -> str:
        """Return the device of a worker."""
        return self.workers[index]

    def server(self, index: int) -> str:
        """Return the device of a parameter server."""
        return self.servers[index]


def _device_name(job: str, index: int) -> str:
    return f"{_task_name(job, index)}/device:CPU:0"


def _task_name(job: str, index: int) -> str:
    return f"/job:{job}/replica:0/task:{index}"
