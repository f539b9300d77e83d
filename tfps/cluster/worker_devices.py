"""Selects the devices for the steps of workers from the names of all devices of a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tfps.errors import ConfigError

_NAME = re.compile(r"/job:worker/.*task:(?P<task>\d+)/device:(?P<kind>\w+):(?P<number>\d+)$")

LOGICAL_CPUS = "TFPS_LOGICAL_CPUS"


def logical_cpus() -> int:
    """Return the number of logical devices of a worker's CPU: ``TFPS_LOGICAL_CPUS``, or one.

    Raises:
        ConfigError: the variable is set to something else than a whole number from 1.

    Example:

    >>> logical_cpus()
    1
    """
    text = os.environ.get(LOGICAL_CPUS, "").strip() or "1"
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise ConfigError(f"received {text!r}, expected a whole number from 1", source=LOGICAL_CPUS)
    return int(text)


def devices_of_workers(names: Iterable[str]) -> tuple[str, ...]:
    """Return the devices on which every worker computes: its GPUs, or its CPU without any.

    A CPU that was divided into logical devices counts as several, so that a program for several
    GPUs can be tried without one.

    Args:
        names: the names of all devices, as TensorFlow lists them.

    Raises:
        ConfigError: workers have different numbers of devices.

    Example:

    >>> devices_of_workers(["/job:worker/replica:0/task:0/device:CPU:0",
    ...                     "/job:worker/replica:0/task:0/device:GPU:0",
    ...                     "/job:worker/replica:0/task:0/device:GPU:1"])
    ('/device:GPU:0', '/device:GPU:1')
    """
    numbers: dict[int, dict[str, list[int]]] = {}
    for name in names:
        if match := _NAME.match(name):
            kinds = numbers.setdefault(int(match["task"]), {})
            kinds.setdefault(match["kind"], []).append(int(match["number"]))
    by_task = {task: _devices_of_one_worker(kinds) for task, kinds in sorted(numbers.items())}
    if len(set(by_task.values())) > 1:
        counts = ", ".join(f"worker {task} has {len(devices)}" for task, devices in by_task.items())
        raise ConfigError(
            f"devices: {counts}, expected the same number and kind on every worker; "
            "hide devices of the other workers, for example with CUDA_VISIBLE_DEVICES=0"
        )
    return next(iter(by_task.values()), ("/device:CPU:0",))


def _devices_of_one_worker(kinds: dict[str, list[int]]) -> tuple[str, ...]:
    kind = "GPU" if kinds.get("GPU") else "CPU"
    return tuple(f"/device:{kind}:{number}" for number in sorted(kinds.get(kind, [0])))
