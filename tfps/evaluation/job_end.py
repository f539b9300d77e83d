"""Finds out whether the job to which an evaluator belongs has ended."""

from __future__ import annotations

import math
import os
import time
from typing import Protocol

from tfps.cluster import ClusterSpec, accepts_connections, missing_tasks, timeout_from_environment
from tfps.cluster.timeout import CHIEF_TIMEOUT_S, DEFAULT_CHIEF_TIMEOUT_S
from tfps.evaluation.job_watch import JobWatch
from tfps.scheduler.client import present_cluster

POLL_INTERVAL_S = 1.0  # a TCP connection to the chief


class JobEnd(Protocol):
    """Decides when an evaluator ends."""

    def end_reason(self) -> str | None:
        """Return why no more checkpoints will be written; None while more may be."""

    def record_checkpoint(self) -> None:
        """Record that a new checkpoint was found."""


class UnknownJob:
    """Never ends an evaluator, whose job is unknown."""

    def end_reason(self) -> str | None:
        return None

    def record_checkpoint(self) -> None:
        pass


class ClusterEnd:
    """Detects the end of a cluster's job, for an evaluator that the cluster does not list.

    Args:
        spec: the cluster.
        chief_timeout_s: the longest time for which the chief may be unreachable.
    """

    def __init__(self, spec: ClusterSpec, *, chief_timeout_s: float) -> None:
        self._spec = spec
        self._watch = JobWatch(
            now_s=time.monotonic(), chief_timeout_s=chief_timeout_s, variable=CHIEF_TIMEOUT_S
        )
        self._checked_s = -math.inf

    def end_reason(self) -> str | None:
        if time.monotonic() - self._checked_s >= POLL_INTERVAL_S:
            chief = accepts_connections(present_cluster(self._spec).address("chief", 0))
            # The other tasks, which may be many, matter only without the chief.
            others = not chief and bool(self._reachable_tasks("worker", "ps"))
            self._checked_s = time.monotonic()
            self._watch.observe(now_s=self._checked_s, chief=chief, others=others)
        return self._watch.end

    def _reachable_tasks(self, *task_types: str) -> set[tuple[str, int, str]]:
        tasks = set(present_cluster(self._spec).tasks(*task_types))
        return tasks - missing_tasks(tasks).keys()

    def record_checkpoint(self) -> None:
        self._watch.record_checkpoint(now_s=time.monotonic())


def end_of_this_job() -> JobEnd:
    """Return the object that detects the end of this process's job, as `TF_CONFIG` describes it.

    Raises:
        ConfigError: `TF_CONFIG` or ``TFPS_CHIEF_TIMEOUT_S`` is invalid.
    """
    if not os.environ.get("TF_CONFIG", "").strip():
        return UnknownJob()
    spec = ClusterSpec.from_environment()
    if spec.task_type != "evaluator":  # the cluster cannot end before this process does
        return UnknownJob()
    timeout_s = timeout_from_environment(CHIEF_TIMEOUT_S, default_s=DEFAULT_CHIEF_TIMEOUT_S)
    return ClusterEnd(spec, chief_timeout_s=timeout_s)
