"""Measures the CPU time and the memory of this process."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """The resources that a task uses.

    Args:
        cpu_s: the CPU time of its process since it began, in seconds.
        memory_bytes: the memory that it has in RAM.
        memory_limit_bytes: the most that it can have: its control group's limit, or the machine's
            memory.
    """

    cpu_s: float
    memory_bytes: int
    memory_limit_bytes: int

    def to_json(self) -> str:
        """Return the usage as JSON text."""
        return json.dumps(dataclasses.asdict(self))


def measure_usage() -> Usage:
    """Measure this process."""
    process = psutil.Process()
    times = process.cpu_times()
    return Usage(
        cpu_s=round(times.user + times.system, 3),
        memory_bytes=process.memory_info().rss,
        memory_limit_bytes=_read_memory_limit_bytes(),
    )


def _read_memory_limit_bytes() -> int:
    """Return the smallest limit of this process's control groups and of the machine."""
    limits = [psutil.virtual_memory().total]
    try:
        (path,) = (
            line.split(":", 2)[2]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )
    except (OSError, ValueError):  # another system, or the older control groups
        return limits[0]
    group = CGROUPS / path.strip("/")
    for folder in (group, *group.parents):
        limit = folder / "memory.max"
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            limits.append(int(text))
    return min(limits)
