"""The task that an evaluator looks for, and the one that it asks when that one is gone."""

from __future__ import annotations

import json
import math
import socket

import pytest

from tests.messages import raises
from tfps.cluster import ClusterSpec
from tfps.errors import ConfigError
from tfps.evaluation import job_end
from tfps.evaluation.job_end import ClusterEnd, UnknownJob, end_of_this_job


def _listen() -> tuple[socket.socket, str]:
    task = socket.create_server(("127.0.0.1", 0))
    return task, f"127.0.0.1:{task.getsockname()[1]}"


def test_the_end_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_end, "POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr("tfps.evaluation.job_watch.CONFIRMED_AFTER_S", 0.0)
    (chief, chief_address), (worker, worker_address), (ps, ps_address) = (
        _listen() for _ in range(3)
    )
    spec = ClusterSpec(
        jobs={"chief": (chief_address,), "worker": (worker_address,), "ps": (ps_address,)}
    )
    end = ClusterEnd(spec, chief_timeout_s=math.inf)
    reasons = [end.end_reason()]
    for task in (chief, ps, worker):
        task.close()
        reasons.append(end.end_reason())
    assert reasons == [None, None, None, "all tasks of the cluster have ended"]


@pytest.mark.parametrize("task_type", [None, "chief", "evaluator"])
def test_only_an_evaluator_waits_for_its_cluster(
    task_type: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if task_type is not None:
        spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
        monkeypatch.setenv("TF_CONFIG", json.dumps(spec.tf_config(task_type, 0)))
    expected = ClusterEnd if task_type == "evaluator" else UnknownJob
    assert type(end_of_this_job()) is expected


def test_a_wrong_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {}}')
    with raises(ConfigError, "TF_CONFIG"):
        end_of_this_job()
