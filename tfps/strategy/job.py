"""`tfps.Job`: the name of a job; and for how many workers it has room. Pure."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tfps.errors import ConfigError, refuse

_JOB = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Job:
    """A name for what the servers hold, under which the next chief goes on with it.

    The servers keep the job until `ParameterServerStrategy.close`. Where nothing is to be
    discarded, the strategy takes the name alone: ``job="night"``.

    Args:
        name: of letters, digits, ``_``, ``-`` and ``.``; None: ``TFPS_JOB_ID``, or a job of this
            chief alone.
        fresh: discard first what the servers hold under that name.

    Raises:
        ConfigError: values that cannot work; every mistake, at once.

    Example:

    >>> Job("night", fresh=True)
    Job(name='night', fresh=True)
    """

    name: str | None = None
    _: KW_ONLY
    fresh: bool = False

    def __post_init__(self) -> None:
        problems = []
        fresh: Any = self.fresh
        if problem := name_problem(self.name):
            problems.append(f"name: {problem}")
        if not isinstance(fresh, bool):
            problems.append(f"fresh: received {fresh!r}, expected True or False")
        refuse(problems, source="tfps.Job")


def check_job(job: Any) -> Job:
    """Return a ``job`` argument as a `Job`.

    Args:
        job: a `Job`, its name, or None.

    Raises:
        ConfigError: it is something else, or no name of a job.
    """
    if isinstance(job, Job):
        return job
    if problem := name_problem(job):
        raise ConfigError(f"job: {problem}, or a tfps.Job")
    return Job(job)


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
    """Say why servers cannot have room for `max_workers`; None: they can.

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
