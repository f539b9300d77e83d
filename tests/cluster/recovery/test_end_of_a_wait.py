"""`fit` waits for a lost server: Ctrl-C and the end of its strategy or cluster end the wait."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.harness.leaks import assert_no_leaks
from tfps.errors import StrategyClosed
from tfps.launch import LocalCluster

DEADLINE_S = 60.0
MOST_EPOCHS = 500

# How a wait ends needs no cluster: see tests/unit/recovery/test_server_return.py.
pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


class LoseServer(EpochsOfOneVisit):
    """Kills a server that is not started again, and acts when `fit` waits for it."""

    def __init__(self, job: CountingJob, act: Callable[[], Any]) -> None:
        super().__init__(job)
        self.acts = threading.Thread(target=self._act)
        self.act = act

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.acts.ident is None:
            self.job.cluster.kill("ps", 1)
            self.acts.start()

    def _act(self) -> None:
        ends_at = time.monotonic() + DEADLINE_S
        while self.job.strategy.tasks["ps 1"] != "lost":
            assert time.monotonic() < ends_at, self.job.strategy.tasks
            time.sleep(0.05)
        self.act()


def _job(cluster: LocalCluster, folder: Path) -> CountingJob:
    fault_tolerance = tfps.FaultTolerance(checkpoints=folder, every_steps=100)
    return CountingJob(cluster, placement="round_robin", fault_tolerance=fault_tolerance)


def test_ctrl_c_ends_the_wait_and_fit_may_begin_again(
    tasks: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster = tasks(workers=1, ps=2)
    job = _job(cluster, tmp_path)
    # `_thread.interrupt_main` would leave a main thread asleep that waits for a lock.
    lose = LoseServer(job, functools.partial(os.kill, os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        job.fit(lose, epochs=MOST_EPOCHS)
    lose.acts.join()
    cluster.restart("ps", 1)
    visits = EpochsOfOneVisit(job)
    job.fit(visits, epochs=1)
    assert visits.wrong_epochs == {}
    job.strategy.close()


@pytest.mark.parametrize("what", ["strategy", "cluster"])
def test_the_end_of_what_it_runs_on_ends_the_wait(what: str, tmp_path: Path) -> None:
    ended: list[BaseException] = []
    with assert_no_leaks(), LocalCluster(workers=1, ps=2) as cluster:
        job = _job(cluster, tmp_path)
        waits = threading.Event()
        lose = LoseServer(job, waits.set)

        def fit() -> None:
            try:
                job.fit(lose, epochs=MOST_EPOCHS)
            except Exception as error:  # noqa: BLE001 - looked at below
                ended.append(error)

        thread = threading.Thread(target=fit)
        thread.start()
        with contextlib.ExitStack() as stack:
            stack.callback(thread.join, DEADLINE_S)
            assert waits.wait(DEADLINE_S)
            (cluster if what == "cluster" else job.strategy).close()
        assert not thread.is_alive()
        lose.acts.join()
    [error] = ended
    assert isinstance(error, StrategyClosed | tf.errors.UnavailableError), error
