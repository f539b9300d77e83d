"""Finds out whether the job to which an evaluator belongs has ended."""

from __future__ import annotations

import math
import os
import time
from typing import Protocol

from tfps.cluster import (
    ClusterSpec,
    accepts_connections,
    missing_tasks,
    timeout_from_environment,
)
from tfps.evaluation.job_watch import JobWatch
from tfps.launch.environment import CHIEF_TIMEOUT_S
from tfps.launch.serving import DEFAULT_CHIEF_TIMEOUT_S

LOOK_EVERY_S = 1.0  # a TCP connection to the chief


class JobEnd(Protocol):
    """The condition that ends an evaluator."""

    def end_reason(self) -> str | None:
        """Return why no more checkpoints will be written; None while more may be."""

    def see_checkpoint(self) -> None:
        """Record that a new checkpoint was found."""


class Unknown:
    """The end of the training is unknown, so the evaluator continues."""

    def end_reason(self) -> str | None:
        return None

    def see_checkpoint(self) -> None:
        pass


class ClusterEnd:
    """The end of a cluster's job, as seen by a task that the cluster does not list.

    Args:
        spec: the cluster.
        chief_timeout_s: the longest time for which the chief may be unreachable.
    """

    def __init__(self, spec: ClusterSpec, *, chief_timeout_s: float) -> None:
        self._spec = spec
        self._watch = JobWatch(
            now_s=time.monotonic(), chief_timeout_s=chief_timeout_s, variable=CHIEF_TIMEOUT_S
        )
        self._looked_at_s = -math.inf

    def end_reason(self) -> str | None:
        if time.monotonic() - self._looked_at_s >= LOOK_EVERY_S:
            chief = accepts_connections(self._spec.address("chief", 0))
            # The other tasks, which may be many, matter only without the chief.
            others = not chief and bool(self._reached("worker", "ps"))
            self._looked_at_s = time.monotonic()
            self._watch.observe(now_s=self._looked_at_s, chief=chief, others=others)
        return self._watch.end

    def _reached(self, *task_types: str) -> set[tuple[str, int, str]]:
        tasks = set(self._spec.tasks(*task_types))
        return tasks - missing_tasks(tasks).keys()

    def see_checkpoint(self) -> None:
        self._watch.see_checkpoint(now_s=time.monotonic())


def end_of_this_job() -> JobEnd:
    """Return the end of the job whose evaluator this process is according to `TF_CONFIG`.

    Raises:
        ConfigError: `TF_CONFIG` or ``TFPS_CHIEF_TIMEOUT_S`` is invalid.
    """
    if not os.environ.get("TF_CONFIG", "").strip():
        return Unknown()
    spec = ClusterSpec.from_environment()
    if spec.task_type != "evaluator":  # the cluster cannot end before this process does
        return Unknown()
    timeout_s = timeout_from_environment(CHIEF_TIMEOUT_S, default_s=DEFAULT_CHIEF_TIMEOUT_S)
    return ClusterEnd(spec, chief_timeout_s=timeout_s)
