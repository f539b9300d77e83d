"""A clock that counts, beside time and CPU, the bytes of each server's connections."""

from __future__ import annotations

from tfps.bench.runner import TaskNumbers
from tfps.bench.socket_bytes import tcp_bytes_of
from tfps.bench.usage import EpochClock


class TrafficClock(EpochClock):
    """Measures epochs of a cluster's tasks, with what each server has sent and received by TCP.

    Args:
        tasks: of the cluster.
    """

    def __init__(self, tasks: TaskNumbers) -> None:
        super().__init__([number for numbers in tasks.groups.values() for number in numbers])
        self._servers = tasks.groups.get("ps", ())
        self._before: list[int | None] = []
        self.server_bytes: list[list[int]] = []  # of each epoch; empty where nobody counts them

    def begin(self) -> None:
        self._before = [tcp_bytes_of(server) for server in self._servers]
        super().begin()

    def end(self, steps: int) -> None:
        """End an epoch of so many steps."""
        super().end(steps)
        after = [tcp_bytes_of(server) for server in self._servers]
        pairs = zip(self._before, after, strict=True)
        self.server_bytes.append([b - a for a, b in pairs if a is not None and b is not None])
