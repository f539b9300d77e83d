"""Finds every problem of a cluster's description, each with its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfps.cluster.address import address_problem
from tfps.errors import refuse

JOB_ORDER = ("chief", "worker", "ps")  # the jobs of a cluster, `ps` last, the same on every task
TASK_TYPES = (*JOB_ORDER, "evaluator")

# These messages contain the text of TensorFlow's own errors, if there are any, so that searches
# find them, and since code for TensorFlow's strategy expects them.
_REQUIRED = {
    "chief": "Add the address of the coordinator, which runs the training program",
    "worker": "There must be at least one worker, a task that computes gradients",
    "ps": "There must be at least one ps, a task that keeps the parameters",
}


def check_counts(source: str, **counts: object) -> None:
    """Check numbers of tasks that a user has passed.

    Args:
        source: the name of the function that received them, for the message.
        counts: the numbers, by the names of the arguments.

    Raises:
        ConfigError: a number is no whole number from 1.
    """
    problems = [
        f"{name}: received {count!r}, expected a whole number from 1"
        for name, count in counts.items()
        if isinstance(count, bool) or not isinstance(count, int) or count < 1
    ]
    refuse(problems, source=source)


def problems_of_jobs(jobs: Any) -> list[str]:
    """Return every problem of the value of the key ``cluster``."""
    if not isinstance(jobs, Mapping) or not jobs:
        return [
            f"cluster: {f'received {jobs!r}' if jobs else 'missing'}, expected an object that maps "
            "chief, worker and ps to lists of host:port"
        ]
    problems = [
        f"cluster.{name}: missing. {why}"
        for name, why in _REQUIRED.items()
        if name not in jobs and not (name == "chief" and "master" in jobs)
    ]
    for name, addresses in jobs.items():
        problems += _problems_of_job(name, addresses)
    return problems + _duplicate_problems(jobs)


def problems_of_task(task: Any, jobs: Any) -> list[str]:
    """Return every problem of the value of the key ``task``."""
    if not isinstance(task, Mapping):
        return [
            f'task: received {task!r}, expected an object such as {{"type": "worker", "index": 0}}'
        ]
    problems = []
    task_type, index = task.get("type"), task.get("index")
    if task_type not in TASK_TYPES:
        received = "missing" if task_type is None else f"Unrecognized task_type: {task_type}"
        problems.append(f"task.type: {received}, expected one of {', '.join(TASK_TYPES)}")
    number = _to_whole_number(index)
    if number is None:
        received = "missing" if index is None else f"received {index!r}"
        problems.append(f"task.index: {received}, expected a whole number from 0")
    elif task_type in JOB_ORDER and isinstance(jobs, Mapping):
        addresses = jobs.get(task_type)
        if isinstance(addresses, list | tuple) and number >= len(addresses) > 0:
            problems.append(
                f"task.index: received {number}, expected at most {len(addresses) - 1}, "
                f"the last index of cluster.{task_type}"
            )
    return problems


def _problems_of_job(name: object, addresses: Any) -> list[str]:
    key = f"cluster.{name}"
    if name == "evaluator":
        return [
            f"{key}: the coordinator does not connect to an evaluator; remove this key and start "
            'the evaluator with "task": {"type": "evaluator", "index": 0}'
        ]
    if name not in JOB_ORDER:
        hint = "; write chief instead of master" if name == "master" else ""
        return [
            f"{key}: Disallowed task type found in cluster spec, "
            f"expected one of {', '.join(JOB_ORDER)}{hint}"
        ]
    if not isinstance(addresses, list | tuple):
        return [f"{key}: received {addresses!r}, expected a list of host:port"]
    if not addresses:
        return [f"{key}: received an empty list. {_REQUIRED[str(name)]}"]
    problems = []
    if name == "chief" and len(addresses) > 1:
        problems.append(
            f"{key}: received {len(addresses)} addresses, expected one. "
            "There must be at most one 'chief' job."
        )
    for index, address in enumerate(addresses):
        problem = address_problem(address)
        if problem:
            problems.append(f"{key}[{index}]: {problem}")
    return problems


def _duplicate_problems(jobs: Mapping[Any, Any]) -> list[str]:
    first: dict[str, str] = {}
    problems = []
    for name, addresses in jobs.items():
        if name not in JOB_ORDER or not isinstance(addresses, list | tuple):
            continue
        for index, address in enumerate(addresses):
            key = f"cluster.{name}[{index}]"
            if isinstance(address, str) and address.lower() in first:
                problems.append(
                    f"{key}: received {address!r}, the address of {first[address.lower()]}; "
                    "give each task its own address"
                )
            elif isinstance(address, str):
                first[address.lower()] = key
    return problems


def _to_whole_number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        return None
    return int(value) if int(value) >= 0 else None
