"""A job that ends because of a lost task says so in short; a mistake in code stays what it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tfps.errors import ClusterError, TaskFailed
from tfps.job.train import _lost_tasks_in_short
from tfps.recovery.restart_policy import EndJob

LOST = tf.errors.UnavailableError(
    None, None, "GRPC: from remote target /job:ps/replica:0/task:0 ... connection refused"
)


class Cluster:
    def __init__(self, *failures: str, ended: EndJob | None = None) -> None:
        self.keeper = SimpleNamespace(ended=ended)
        self._failures = failures

    def failures(self) -> list[TaskFailed]:
        return [TaskFailed(text) for text in self._failures]


def _raised(error: Exception, cluster: Any) -> Exception:
    with pytest.raises(Exception) as raised, _lost_tasks_in_short(cluster):  # noqa: PT011
        raise error
    return raised.value


def test_a_task_of_this_machine_tells_how_it_ended() -> None:
    error = tf.errors.DeadlineExceededError(None, None, "Graph execution error: ...")
    told = _raised(error, Cluster("ps 0 ended by SIGKILL; its last lines: ..."))
    assert isinstance(told, ClusterError)
    assert str(told) == "the job cannot go on.\nps 0 ended by SIGKILL; its last lines: ..."


def test_who_keeps_the_tasks_says_why_the_job_cannot_go_on() -> None:
    told = _raised(LOST, Cluster("worker 0 ended by ...", ended=EndJob("no worker is left")))
    assert isinstance(told, ClusterError)
    assert str(told) == "the job cannot go on: no worker is left."


def test_a_task_elsewhere_is_named_by_the_error() -> None:
    told = _raised(LOST, None)
    assert isinstance(told, ClusterError)
    assert "/job:ps/replica:0/task:0" in str(told)


@pytest.mark.parametrize("failures", [(), ("worker 1 ended by SIGKILL; ...",)])
def test_a_mistake_in_code_stays_what_it_is(
    failures: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    error = ValueError("wrong")
    assert _raised(error, Cluster(*failures)) is error
    assert capsys.readouterr().out.splitlines() == [*failures], "but a lost worker is reported"
