"""Short waits, and tasks that go on again whatever a test did to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tfps
from tfps.launch import LocalCluster

# A task that gives no reply for three seconds, on a machine that may be busy with other tests.
PROBES = {"TFPS_PROBE_PERIOD_S": "0.25", "TFPS_PROBE_DEADLINE_S": "1"}

# A module's tests kill more tasks of one cluster than a job has restarts for, and each time a task
# would be started again later.
RESTARTS = tfps.FaultTolerance(restart_budget=1000)
LONGEST_BACK_OFF_S = 1.0


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfps.recovery.fault_tolerance.LONGEST_BACK_OFF_S", LONGEST_BACK_OFF_S)
    for name, value in PROBES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def tasks(cluster: Callable[..., LocalCluster]) -> Iterator[Callable[..., LocalCluster]]:
    """Return a function that gives the module's cluster; all of its tasks run after the test."""
    used: list[LocalCluster] = []

    def get(*, workers: int, ps: int) -> LocalCluster:
        used.append(cluster(workers=workers, ps=ps, fault_tolerance=RESTARTS))
        return used[-1]

    yield get
    for given in used:
        for task_type, index, _ in given.spec.tasks("worker", "ps"):
            given.resume(task_type, index)
