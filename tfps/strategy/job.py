"""`tfps.Job`: the name of a job; and the check of ``max_workers``. Pure."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tfps.errors import ConfigError, refuse

_JOB = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Job:
    """The name under which servers keep a job's variables, so that the next chief can go on.

    Use it as ``job`` of a `tfps.ParameterServerStrategy` if a training must survive the loss of its
    chief: a new chief that passes the same name finds the variables on the servers. The servers
    keep them until `ParameterServerStrategy.close`. Without `fresh`, the name alone is enough:
    ``job="night"``.

    Args:
        name: letters, digits, ``_``, ``-`` and ``.``; None: the value of ``TFPS_JOB_ID``, or
            else a job of this chief alone.
        fresh: whether to discard the variables that the servers keep under this name, and begin
            anew.

    Raises:
        ConfigError: values are invalid; names every mistake.

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
        ConfigError: it is of another type, or not a valid name.
    """
    if isinstance(job, Job):
        return job
    if problem := name_problem(job):
        raise ConfigError(f"job: {problem}, or a tfps.Job")
    return Job(job)


def is_job_name(name: Any) -> bool:
    """Return whether a value is a valid name of a job.

    Example:

    >>> [name for name in ("night", "v1.2-b", "my job", "", 3) if is_job_name(name)]
    ['night', 'v1.2-b']
    """
    return isinstance(name, str) and _JOB.fullmatch(name) is not None


def name_problem(name: Any) -> str | None:
    """Return why a name is invalid, or None if it is valid.

    Args:
        name: the name; None for a job without one, which is valid.
    """
    if name is None or is_job_name(name):
        return None
    return f"received {name!r}, expected a name of letters, digits, '_', '-' and '.', or None"


def max_workers_problem(max_workers: Any, *, workers: int | None) -> str | None:
    """Return why a value of ``max_workers`` is invalid, or None if it is valid.

    Args:
        max_workers: the value; None for the cluster's number of workers.
        workers: the cluster's number of workers; None: not known.

    Example:

    >>> max_workers_problem(1, workers=2)
    "received 1, expected 2 at least, the cluster's workers, or None"
    """
    if max_workers is None:
        return None
    is_number = isinstance(max_workers, int) and not isinstance(max_workers, bool)
    if is_number and max_workers >= (workers or 1):
        return None
    there = "1 at least" if workers is None else f"{workers} at least, the cluster's workers"
    return f"received {max_workers!r}, expected {there}, or None"
