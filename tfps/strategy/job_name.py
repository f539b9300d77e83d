"""What a job can be called, and for how many workers it has room. Pure."""

from __future__ import annotations

import re
from typing import Any

_JOB = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


def is_job_name(name: Any) -> bool:
    """Whether a job can be called so.

    Example:

    >>> [name for name in ("night", "v1.2-b", "my job", "", 3) if is_job_name(name)]
    ['night', 'v1.2-b']
    """
    return isinstance(name, str) and _JOB.fullmatch(name) is not None


def name_problem(name: Any) -> str | None:
    """Say why a job cannot be called so; None: it can.

    Args:
        name: None for a job without one.
    """
    if name is None or is_job_name(name):
        return None
    return f"received {name!r}, expected a name of letters, digits, '_', '-' and '.', or None"


def room_problem(max_workers: Any, *, workers: int | None) -> str | None:
    """Say why servers cannot have room for so many workers; None: they can.

    Args:
        max_workers: None for as many as there are.
        workers: how many there are; None: not known.

    Example:

    >>> room_problem(1, workers=2)
    "received 1, expected 2 at least, the cluster's workers, or None"
    """
    if max_workers is None:
        return None
    is_number = isinstance(max_workers, int) and not isinstance(max_workers, bool)
    if is_number and max_workers >= (workers or 1):
        return None
    there = "1 at least" if workers is None else f"{workers} at least, the cluster's workers"
    return f"received {max_workers!r}, expected {there}, or None"
