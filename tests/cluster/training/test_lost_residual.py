"""A worker dies while codecs leave something out of what servers send.

What is left out of its gradients: tests/unit/one_process/test_compression.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tfps.compression import Delta, PushPull, TopK
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]

MOST_EPOCHS = 500


@pytest.mark.conformance
def test_a_worker_that_comes_back_holds_nothing(
    cluster: Callable[..., LocalCluster], carrier: str
) -> None:
    """It gets all parameters, then differences to these; each gradient counts once."""
    compression = PushPull(pull=Delta(TopK(0.01)))
    job = CountingJob(cluster(workers=2, ps=1), compression=compression)
    assert job.strategy.stats().transports == ("grpc" if carrier == "grpc" else "direct",)
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=MOST_EPOCHS)
    stats = job.strategy.stats()
    assert killer.wrong_epochs == {}
    assert killer.works_again
    assert stats.updates_applied == epochs * job.epoch_steps
    assert sum(float(weight) for weight in job.model.get_weights()) == 2 * stats.updates_applied
    (coded,) = [codec for each in stats.traffic for codec in each.codecs if "Delta" in codec.codec]
    assert coded.sent_bytes > 0
    job.strategy.close()
