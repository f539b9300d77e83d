"""Looks whether the job that an evaluator belongs to is over."""

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
    """What ends an evaluator."""

    def reason(self) -> str | None:
        """Say why nothing more is written; None while somebody may still write."""

    def see_checkpoint(self) -> None:
        """Take note of a new checkpoint."""


class Unknown:
    """Nobody says when the training ends: the evaluator goes on."""

    def reason(self) -> str | None:
        return None

    def see_checkpoint(self) -> None:
        pass


class ClusterEnd:
    """The end of a cluster's job, seen by a task that the cluster does not list.

    Args:
        spec: the cluster.
        chief_timeout_s: how long its chief may be away.
    """

    def __init__(self, spec: ClusterSpec, *, chief_timeout_s: float) -> None:
        self._spec = spec
        self._watch = JobWatch(
            now_s=time.monotonic(), chief_timeout_s=chief_timeout_s, variable=CHIEF_TIMEOUT_S
        )
        self._looked_at_s = -math.inf

    def reason(self) -> str | None:
        if time.monotonic() - self._looked_at_s >= LOOK_EVERY_S:
            chief = accepts_connections(self._spec.address("chief", 0))
            # Who else is there matters only without the chief; a cluster may have many tasks.
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
    """Return the end of the job that `TF_CONFIG` names this process the evaluator of.

    Raises:
        ConfigError: `TF_CONFIG`, or `TFPS_CHIEF_TIMEOUT_S`, is wrong.
    """
    if not os.environ.get("TF_CONFIG", "").strip():
        return Unknown()
    spec = ClusterSpec.from_environment()
    if spec.task_type != "evaluator":  # the cluster cannot end before this process does
        return Unknown()
    timeout_s = timeout_from_environment(CHIEF_TIMEOUT_S, default_s=DEFAULT_CHIEF_TIMEOUT_S)
    return ClusterEnd(spec, chief_timeout_s=timeout_s)
