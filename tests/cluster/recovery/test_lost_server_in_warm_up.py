"""A parameter server is killed in a warm-up, which ends the job, or after it, which does not."""

from __future__ import annotations

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
from tests.cluster.recovery.kill_server import KillServer, TracedUnits
from tfps.launch import LocalCluster

EPOCHS, WORKERS, SAVE_EVERY = 2, 2, 100
DEADLINE_S = 60.0

# Without processes and quicker: tests/unit/one_process/test_lost_after_warm_up.py.
pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


def _job(cluster: LocalCluster, folder: Path, *, warm_up_steps: int) -> CountingJob:
    return CountingJob(
        cluster,
        counters=TracedUnits,
        placement="round_robin",
        fault_tolerance=tfps.FaultTolerance(checkpoints=folder, every_steps=SAVE_EVERY),
        consistency=tfps.Asynchronous(warm_up_steps=warm_up_steps),
    )


@pytest.mark.parametrize("index", [0, 1], ids=["hands out tickets", "another"])
def test_fit_goes_on_after_it(
    index: int, tasks: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    warm_up_steps = 20
    job = _job(tasks(workers=WORKERS, ps=2), tmp_path, warm_up_steps=warm_up_steps)
    killer = KillServer(job, index, epoch=EPOCHS - 1)
    job.fit(killer, epochs=EPOCHS)
    stats = job.strategy.stats()
    assert killer.traces == TracedUnits.traces
    assert killer.wrong_epochs == {}
    assert stats.examples_seen == EPOCHS * job.examples
    # All begin from the mean of what workers have made of the weights by themselves.
    updates = EPOCHS * job.epoch_steps - WORKERS * warm_up_steps
    assert int(job.model.optimizer.iterations) == updates
    weights = {w._value.device: int(w.numpy()) for w in job.model.trainable_variables}
    servers = job.strategy.runtime.topology.servers
    assert weights[servers[1 - index]] == warm_up_steps + updates
    assert weights[servers[index]] == warm_up_steps + updates - stats.updates_lost
    assert 0 <= stats.updates_lost < updates
    job.strategy.close()


class KillInWarmUp(EpochsOfOneVisit):
    """Kills a server while workers train by themselves: no hook of a batch is called then."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.thread = threading.Thread(target=self._kill)
        self.thread.start()

    def _kill(self) -> None:
        ends_at = time.monotonic() + DEADLINE_S
        while not (run := self.job.strategy.run_state.run) or not run.in_rounds:
            if time.monotonic() > ends_at:
                return
            time.sleep(0.001)
        os.kill(self.job.cluster.pid("ps", 1), signal.SIGKILL)


def test_it_ends_the_job(tasks: Callable[..., LocalCluster], tmp_path: Path) -> None:
    job = _job(tasks(workers=WORKERS, ps=2), tmp_path, warm_up_steps=400)
    killer = KillInWarmUp(job)
    with pytest.raises(tf.errors.UnavailableError, match="the steps of a warm-up"):
        job.fit(killer, epochs=EPOCHS)
    killer.thread.join()
    job.strategy.close()
