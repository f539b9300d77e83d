"""Workers that add up gradients among themselves die, and no update is lost or applied twice.

Their numbers: tests/unit/numbers/modes/test_all_reduce.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.kill_worker import KillWorker
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster]) -> Iterator[CountingJob]:
    job = CountingJob(
        cluster(workers=2, ps=2),
        examples=1002,  # an odd number of batches: the last round has one
        consistency=tfps.Synchronous(),
        placement="all_reduce",
    )
    yield job
    while not all(job.strategy.alive_workers()):
        time.sleep(0.1)  # TensorFlow crashes when a process connects anew in the meantime
    job.strategy.close()


def _assert_weights_count_updates(job: CountingJob) -> int:
    """Check that the servers have the newest weights; return how often they were updated."""
    server = job.strategy.runtime.ticket_server
    cells, layout = server.cells(), server.layout
    counts = {int(item) for weight in job.model.get_weights() for item in np.unique(weight)}
    assert counts == {int(cells[layout.REDUCED])}
    assert cells[layout.HOME] == cells[layout.REDUCED]
    return counts.pop()


@pytest.mark.slow
def test_all_examples_are_seen_once(job: CountingJob) -> None:
    before = _assert_weights_count_updates(job)
    visits = EpochsOfOneVisit(job)
    job.fit(visits, epochs=2)
    rounds = 2 * -(-job.epoch_steps // 2)
    assert visits.wrong_epochs == {}
    assert _assert_weights_count_updates(job) == before + rounds
    assert int(job.model.optimizer.iterations) == before + rounds


@pytest.mark.slow
def test_killed_and_restarted(job: CountingJob) -> None:
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=500)
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert killer.wrong_epochs == {}
    updates = _assert_weights_count_updates(job)
    # Alone the other worker has a round for each batch.
    assert updates >= epochs * job.epoch_steps // 2
