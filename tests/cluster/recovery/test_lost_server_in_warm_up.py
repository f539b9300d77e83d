"""A parameter server is killed in a warm-up, which ends the job.

After it the job goes on: tests/unit/one_process/test_lost_after_warm_up.py.
"""

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
from tests.cluster.recovery.kill_server import TracedUnits
from tests.messages import raises
from tfps.launch import LocalCluster

EPOCHS, WORKERS, SAVE_EVERY = 2, 2, 100
DEADLINE_S = 60.0

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


def _job(cluster: LocalCluster, folder: Path, *, warm_up_steps: int) -> CountingJob:
    return CountingJob(
        cluster,
        counters=TracedUnits,
        placement="round_robin",
        fault_tolerance=tfps.FaultTolerance(checkpoints=folder, every_steps=SAVE_EVERY),
        consistency=tfps.Asynchronous(warm_up_steps=warm_up_steps),
    )


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
    with raises(tf.errors.UnavailableError, "warm-up", remedy="newest checkpoint"):
        job.fit(killer, epochs=EPOCHS)
    killer.thread.join()
    job.strategy.close()
