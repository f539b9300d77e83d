"""Seconds of wall clock and of CPU, over all processes that take part in a case."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil


@dataclass(frozen=True)
class Sample:
    """One measured epoch.

    Args:
        steps: of all workers together.
        seconds: on the wall clock.
        cpu_seconds: of all processes that took part.
        other_cpu_seconds: of everything else on the machine: how quiet it was.
        group_cpu_seconds: of the processes by role, where that was asked for.
    """

    steps: int
    seconds: float
    cpu_seconds: float
    other_cpu_seconds: float
    group_cpu_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> float:
        """How fast all workers together took steps."""
        return self.steps / self.seconds

    @property
    def cpu_ms_per_step(self) -> float:
        """What a step cost on all processors together; the first one, where none was done yet."""
        return 1e3 * self.cpu_seconds / max(1, self.steps)

    def group_cpu_ms_per_step(self, group: str) -> float:
        """What a step cost the processes of one role."""
        return 1e3 * self.group_cpu_seconds[group] / max(1, self.steps)

    @property
    def other_cores(self) -> float:
        """How many cores were busy with something else."""
        return self.other_cpu_seconds / self.seconds


class CpuMeter:
    """CPU seconds that processes and their children have taken since they started.

    Args:
        processes: their numbers.
    """

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = [psutil.Process(number) for number in processes]

    def seconds(self) -> float:
        """The sum up to now; the system counts in steps of 10 ms."""
        total = 0.0
        for process in self._processes:
            for member in [process, *process.children(recursive=True)]:
                times = member.cpu_times()
                total += times.user + times.system
        return total


class EpochClock:
    """Measures epochs: wall clock, and CPU of this process, the cluster's and their children.

    Args:
        processes: the numbers of the cluster's processes; this process is always counted.
        groups: the numbers of the processes of each role that is to be told apart.
    """

    def __init__(
        self, processes: Sequence[int], groups: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self._cpu = CpuMeter([os.getpid(), *processes])
        self._groups = {name: CpuMeter(numbers) for name, numbers in (groups or {}).items()}
        self._started_groups_s: dict[str, float] = {}
        self._started_s = 0.0
        self._started_cpu_s = self._started_machine_s = 0.0
        self.samples: list[Sample] = []

    def begin(self) -> None:
        """Start an epoch."""
        self._started_machine_s = _machine_cpu_s()
        self._started_groups_s = {name: cpu.seconds() for name, cpu in self._groups.items()}
        self._started_cpu_s = self._cpu.seconds()
        self._started_s = time.perf_counter()

    def end(self, steps: int) -> None:
        """End an epoch of so many steps."""
        seconds = time.perf_counter() - self._started_s
        ours_s = self._cpu.seconds() - self._started_cpu_s
        groups_s = {
            name: cpu.seconds() - self._started_groups_s[name] for name, cpu in self._groups.items()
        }
        others_s = max(0.0, _machine_cpu_s() - self._started_machine_s - ours_s)
        self.samples.append(Sample(steps, seconds, ours_s, others_s, groups_s))


def _machine_cpu_s() -> float:
    """CPU seconds of the whole machine since it started, with what its host took away."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
