"""A clock that counts, beside time and CPU, the bytes of each server's connections."""

from __future__ import annotations

from benchmarks.socket_bytes import tcp_bytes_of
from benchmarks.turn import TaskNumbers
from benchmarks.usage import EpochClock
from tfps.cluster import ClusterSpec

Moved = list[int | None]  # of each server; None where bytes are not counted


class TrafficClock(EpochClock):
    """Measures epochs of a cluster's tasks, with what each server has sent and received by TCP.

    The cluster is that of TF_CONFIG; a process without one has no servers.
    """

    def __init__(self, tasks: TaskNumbers) -> None:
        super().__init__([number for numbers in tasks.groups.values() for number in numbers])
        self._servers = tasks.groups.get("ps", ())
        self._tensorflow_ports = _tensorflow_ports() if self._servers else []
        self._before: tuple[Moved, Moved] = ([], [])
        # Of each epoch; empty where bytes are not counted.
        self.server_bytes: list[list[int]] = []
        self.direct_bytes: list[list[int]] = []  # without the connections of TensorFlow's servers

    def begin(self) -> None:
        self._before = self._moved()
        super().begin()

    def end(self, steps: int) -> None:
        """End an epoch of `steps` steps."""
        super().end(steps)
        for found, before, after in zip(
            (self.server_bytes, self.direct_bytes), self._before, self._moved(), strict=True
        ):
            pairs = zip(before, after, strict=True)
            found.append([b - a for a, b in pairs if a is not None and b is not None])

    def _moved(self) -> tuple[Moved, Moved]:
        """Return the bytes of each server: those of all connections, and those of direct ones."""
        direct = [tcp_bytes_of(each, but_ports=self._tensorflow_ports) for each in self._servers]
        return [tcp_bytes_of(server) for server in self._servers], direct


def _tensorflow_ports() -> list[int]:
    """Return the ports that the servers of TensorFlow listen at."""
    addresses = [each for of in ClusterSpec.from_environment().jobs.values() for each in of]
    return [int(address.rpartition(":")[2]) for address in addresses]
