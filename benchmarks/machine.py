"""Where a benchmark ran: processor, memory and load; and by which packages."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil

# Those that decide the numbers.
PACKAGES = ("tensorflow", "keras", "tf_keras", "numpy", "grpcio")


def describe_machine() -> dict[str, Any]:
    """Processor, usable cores, memory, system, and how busy the machine was at the end."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    for line in information.read_text().splitlines() if information.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
