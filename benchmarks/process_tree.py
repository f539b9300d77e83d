"""The CPU, memory and bytes of a command and all that it starts, sampled while it runs."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import psutil

from benchmarks.socket_bytes import TcpBytes, tcp_bytes
from benchmarks.usage import peak_mib

SAMPLE_INTERVAL_S = 0.2
NAMED = re.compile(r"(worker|ps) \d+")  # as tasks of tfps call their processes
UsageSample = tuple[float, TcpBytes]  # when, and bytes until then


@dataclass
class ProcessTree:
    """Samples the CPU and memory of a process and its descendants within a ``with`` block.

    What a process did after the last look at it is not seen: a fifth of a second at the most.
    """

    process: int
    peaks_mib: dict[int, float] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)  # of those that have one
    samples: dict[int, list[UsageSample]] = field(default_factory=lambda: defaultdict(list))

    def take_sample(self) -> None:
        """Sample all processes that live now."""
        try:
            root = psutil.Process(self.process)
            members = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for member in members:
            try:
                times = member.cpu_times()
                self.peaks_mib[member.pid] = peak_mib(member.pid)
                role = role_of(member.name(), member.environ())
            except (psutil.Error, FileNotFoundError, ProcessLookupError, ValueError):
                continue  # it ended; a process that is not reaped yet has no memory
            self.cpu_s[member.pid] = times.user + times.system
            if role is not None:
                self.roles[member.pid] = role
        for process, count in (tcp_bytes(self.roles) or {}).items():
            self.samples[process].append((time.time(), count))

    def of_role(self, role: str) -> list[int]:
        """Return the processes of a role, in the order in which they were seen."""
        return [process for process, of in self.roles.items() if of == role]

    def bytes_between(self, role: str, begin_s: float, end_s: float) -> TcpBytes | None:
        """Return the bytes that the processes of a role sent and received between two moments.

        None where bytes are not counted, or no process has the role.
        """
        counted = [
            samples for process in self.of_role(role) if (samples := self.samples.get(process))
        ]
        found = (between(samples, begin_s, end_s) for samples in counted)
        return sum(found, TcpBytes()) if counted else None

    def __enter__(self) -> ProcessTree:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        self.take_sample()
        while not self._ended.wait(SAMPLE_INTERVAL_S):
            self.take_sample()


def role_of(name: str, environment: Mapping[str, str]) -> str | None:
    """Return a process's kind of task, by its name or the cluster in its environment.

    >>> role_of("ps 0", {}), role_of("python", {})
    ('ps', None)
    """
    if NAMED.fullmatch(name):
        return name.partition(" ")[0]
    task = json.loads(environment.get("TF_CONFIG") or "{}").get("task", {})
    role: str | None = task.get("type")
    return role


def between(samples: Sequence[UsageSample], begin_s: float, end_s: float) -> TcpBytes:
    """Return the bytes between two moments; between two samples they grow evenly."""
    times = [time_s for time_s, _ in samples]
    columns = zip(*(count for _, count in samples), strict=True)
    first, last = zip(*(np.interp([begin_s, end_s], times, each) for each in columns), strict=True)
    return TcpBytes(*(round(b - a) for a, b in zip(first, last, strict=True)))
