"""The peak memory of processes, and the memory that is available."""

from __future__ import annotations

from pathlib import Path


def peak_gb(process: int | str) -> float:
    """Return the peak memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) / 1e6


def available_gb() -> float:
    """Return the memory that processes can still take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("MemAvailable"))) / 1e6
