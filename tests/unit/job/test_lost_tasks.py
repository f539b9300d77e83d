"""A job that ends because of a lost task says so in short; a mistake in code stays what it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.messages import check_message
from tfps.errors import CheckpointError, ClusterError
from tfps.job import train

LOST = tf.errors.UnavailableError(
    None, None, "GRPC: from remote target /job:ps/replica:0/task:0 ... connection refused"
)
NO_WORKER = SimpleNamespace(end_reason="no worker is left", give_up_reason="")
NO_SERVER = SimpleNamespace(
    end_reason="", give_up_reason="what ps 0 held is lost with it. Start it again"
)
NOTHING = SimpleNamespace(end_reason="", give_up_reason="")


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "REASON_TIMEOUT_S", 0.0)


def _raised(error: Exception, supervisor: Any) -> Exception:
    with pytest.raises(Exception) as raised, train.translate_lost_tasks(supervisor):  # noqa: PT011
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("supervisor", "expected"),
    [
        (NO_WORKER, "no worker is left"),
        (NO_SERVER, "what ps 0 held is lost with it. Start it again."),
    ],
)
def test_who_keeps_the_tasks_says_why_the_job_cannot_go_on(supervisor: Any, expected: str) -> None:
    for error in (LOST, tf.errors.DeadlineExceededError(None, None, "Graph execution error: ...")):
        raised = _raised(error, supervisor)
        assert isinstance(raised, ClusterError)
        check_message(str(raised), "The job cannot continue", received=expected)


def test_the_checkpoint_that_has_the_newest_weights_is_named() -> None:
    raised = _raised(CheckpointError("Restore checkpoint 7"), NO_WORKER)
    assert isinstance(raised, ClusterError)
    check_message(str(raised), "no worker is left", remedy="Restore checkpoint 7")


class LateSupervisor:
    """A supervisor that looks at its tasks after the connection with one has broken."""

    give_up_reason = ""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def end_reason(self) -> str:
        self.looks += 1
        return "no worker is left" if self.looks > 2 else ""


def test_a_keeper_that_does_not_know_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "REASON_TIMEOUT_S", 60.0)
    raised = str(_raised(LOST, LateSupervisor()))
    check_message(raised, "The job cannot continue", received="no worker is left")


@pytest.mark.parametrize("supervisor", [None, NOTHING])
def test_a_task_that_nobody_knows_more_of_is_named_by_the_error(supervisor: Any) -> None:
    raised = _raised(LOST, supervisor)
    assert isinstance(raised, ClusterError)
    check_message(str(raised), "/job:ps/replica:0/task:0", remedy="Start the job again")


@pytest.mark.parametrize("supervisor", [None, NOTHING])
def test_a_mistake_in_code_stays_what_it_is(
    supervisor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "REASON_TIMEOUT_S", 60.0)  # for which it does not wait
    error = ValueError("wrong")
    assert _raised(error, supervisor) is error
