"""Where a benchmark ran: processor, memory, load and the versions of the packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import psutil

import tfps

PACKAGES = ("tensorflow", "keras", "tf_keras", "numpy", "grpcio")


def package_versions() -> dict[str, str | None]:
    """The versions that decide the numbers; None for a package that is not installed."""
    versions = {"python": platform.python_version(), "tfps": tfps.__version__}
    return versions | {name: _version(name) for name in PACKAGES}


def describe_machine() -> dict[str, Any]:
    """Processor, usable cores, memory, system, and how busy the machine was at the end."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    for line in information.read_text().splitlines() if information.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
