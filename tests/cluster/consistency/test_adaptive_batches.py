"""Rounds whose batches are shared out by speed: no batch is lost with a worker or sent twice.

The share of each worker: tests/unit/one_process/test_requests_of_fit.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tfps
from tests.cluster.counting import numbered
from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster], carrier: str
) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        placement="round_robin",
        batch_callbacks="sampled",
        consistency=tfps.Synchronous(adaptive_batches=4),
    )
    yield strategy
    strategy.close()


def test_batches_that_the_chief_sends_are_kept_until_they_are_closed(
    strategy: tfps.ParameterServerStrategy, cluster: Callable[..., LocalCluster]
) -> None:
    job = CountingJob(cluster(workers=2, ps=2), strategy=strategy, examples=400)
    x, labels = numbered(job.examples)

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for begin in range(0, job.examples, job.batch_size):
            part = slice(begin, begin + job.batch_size)
            yield x[part], labels[part]

    job.model.fit(batches(), epochs=1, verbose=0)
    assert set(job.visits.counts()) == {1}


# A quicker death in rounds is in test_synchronous.py.
@pytest.mark.conformance
def test_a_worker_that_dies_leaves_its_batches_to_others(
    strategy: tfps.ParameterServerStrategy, cluster: Callable[..., LocalCluster]
) -> None:
    job = CountingJob(cluster(workers=2, ps=2), strategy=strategy)
    before, other = job.updates(), strategy.stats().versions[0]
    killer = KillWorker(job, restart=True)
    job.fit(killer, epochs=500)
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert killer.wrong_epochs == {}
    counts = [now - then for now, then in zip(job.updates(), before, strict=True)]
    first, second = strategy.stats().versions
    assert first == second
    # Tickets that one server had counted before the death are repeated, and add nothing there.
    assert first - other - 3 <= min(counts)
    assert max(counts) <= first - other
    while not all(strategy.alive_workers()):
        time.sleep(0.1)  # TensorFlow crashes when a process connects anew in the meantime
