"""The memory of processes, now and at its peak, and the memory that is available."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from tfps.launch import LocalCluster


def memory_by_task_kb(cluster: LocalCluster) -> dict[str, int]:
    """Return the present memory of this process, the chief, and of each task of its cluster."""
    tasks = cluster.spec.tasks("worker", "ps")
    processes = {f"{kind} {index}": cluster.pid(kind, index) for kind, index, _ in tasks}
    processes["chief"] = os.getpid()
    return {name: psutil.Process(pid).memory_info().rss >> 10 for name, pid in processes.items()}


def peak_gb(process: int | str) -> float:
    """Return the peak memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) / 1e6


def available_gb() -> float:
    """Return the memory that processes can still take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("MemAvailable"))) / 1e6
