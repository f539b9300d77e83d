"""A worker dies while codecs leave something out of its gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tfps.compression import Delta, PushPull, TopK
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]

MOST_EPOCHS = 500


# In one process: `test_who_was_lost_begins_anew` in tests/unit/one_process/test_compression.py.
@pytest.mark.conformance
def test_what_is_left_out_goes_with_the_worker(
    cluster: Callable[..., LocalCluster], carrier: str
) -> None:
    """Each push sends one of the gradient's two numbers, and keeps the other for the next."""
    job = CountingJob(cluster(workers=2, ps=1), compression=TopK(0.01))
    assert job.strategy.stats().transports == ("grpc" if carrier == "grpc" else "direct",)
    assert job.strategy.stats().residuals_dropped == 0
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=MOST_EPOCHS)
    stats = job.strategy.stats()
    assert killer.wrong_epochs == {}
    assert killer.works_again
    assert stats.updates_applied == epochs * job.epoch_steps
    assert stats.residuals_dropped == 1
    # After each push of a worker 1 is left: of two workers, and of one that has died.
    moved = sum(float(weight) for weight in job.model.get_weights())
    assert 1 <= 2 * stats.updates_applied - moved <= 3
    job.strategy.close()


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
    (coded,) = [codec for each in stats.traffic for codec in each.codecs if "Diff" in codec.codec]
    assert coded.sent_bytes > 0
    job.strategy.close()
