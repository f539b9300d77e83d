"""The most memory that a process has had at once."""

from __future__ import annotations

import re
from pathlib import Path

# The system's own count, so that no moment is missed between two looks.
PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)


def peak_mib(process: int) -> float:
    """The largest resident set of a process since it began, in MiB.

    Pages that it shares with others, such as libraries, count in full.

    Args:
        process: its number.
    """
    return peak_of(Path(f"/proc/{process}/status").read_text())


def peak_of(status: str) -> float:
    r"""The same of what the system says of a process.

    Example:

    >>> peak_of("Name: python\nVmHWM:    2048 kB\nVmRSS:    1024 kB\n")
    2.0
    """
    found = PEAK.search(status)
    if found is None:
        raise ValueError(f"expected a line with VmHWM, received {status!r}")
    return int(found[1]) / 1024
