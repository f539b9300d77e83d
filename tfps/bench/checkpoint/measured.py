"""Seconds, pauses and memory of saves and restores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tfps.bench.memory import peak_mib


@dataclass(frozen=True, kw_only=True)
class CheckpointSample:
    """One save, or one restore.

    Args:
        way: a key of `TITLES`.
        what: `SAVE` or `RESTORE`.
        seconds: until it is done.
        pause_s: how long training rests.
        chief_mib: by which the chief's memory grew at most.
        server_mib: by which that of a server grew at most.
    """

    way: str
    what: str
    seconds: float
    pause_s: float
    chief_mib: float
    server_mib: float


class Memory:
    """By how much the memory of processes grows at most.

    Args:
        processes: their numbers.
    """

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = processes
        self._before: dict[int, float] = {}

    def begin(self) -> None:
        """Forget earlier peaks."""
        for process in self._processes:
            Path(f"/proc/{process}/clear_refs").write_text("5")
            self._before[process] = psutil.Process(process).memory_info().rss / 2**20

    def growth_mib(self) -> float:
        """The largest of all processes since then."""
        return max(peak_mib(process) - self._before[process] for process in self._processes)


class Measured:
    """Takes samples.

    Args:
        servers: the process numbers of the servers.
    """

    def __init__(self, servers: Sequence[int]) -> None:
        self._chief, self._servers = Memory([os.getpid()]), Memory(servers)
        self.samples: list[CheckpointSample] = []

    @contextmanager
    def sample(self, way: str, what: str, pause_s: Callable[[], float | None]) -> Iterator[None]:
        """Measure what is inside; a pause of None is all of it."""
        self.begin()
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        rest_s = pause_s()
        self.end(way, what, seconds=seconds, pause_s=seconds if rest_s is None else rest_s)

    def begin(self) -> None:
        """What comes is to be measured."""
        os.sync()  # what was written before must not have to be waited for
        self._chief.begin()
        self._servers.begin()

    def end(self, way: str, what: str, *, seconds: float, pause_s: float) -> None:
        """Take a sample of what was done since `begin`."""
        self.samples.append(
            CheckpointSample(
                way=way,
                what=what,
                seconds=seconds,
                pause_s=pause_s,
                chief_mib=self._chief.growth_mib(),
                server_mib=self._servers.growth_mib(),
            )
        )
