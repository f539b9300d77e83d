"""A worker is killed at any moment of its exchanges: every server has applied the same."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tfps.launch import LocalCluster
from tfps.optimizers.server_update import MIN_COMPILED_ITEMS

# The second server's push is long: much of a step lies between the ends of the two pushes. That of
# the first is a single kernel of XLA.
ITEMS = {"first": 2 * MIN_COMPILED_ITEMS, "second": 3_000_000}
# A task takes seconds to start again, on a busy machine tens of them.
COMES_BACK_S = 120.0
LOOK_EVERY_S = 0.002


class WideCounters(keras.layers.Layer):
    """Two wide weights that grow by one with each update of SGD at rate -1, one per server."""

    def build(self, input_shape: Any) -> None:
        self.wide = [
            self.add_weight(shape=(items,), initializer="zeros", name=name)
            for name, items in ITEMS.items()
        ]

    def call(self, inputs: Any) -> Any:
        return 0.0 * inputs[:, :1] + sum(keras.ops.sum(weight) for weight in self.wide)


def torn_pushes(job: CountingJob) -> int:
    """How often a server had applied a ticket that another one had not.

    Such a ticket comes again, and only one of the two has seen it before.
    """
    servers = job.strategy.runtime.servers
    first, second = (server.cells()[server.layout.DUPLICATES] for server in servers)
    return abs(int(first) - int(second))


class Killer(threading.Thread):
    """Kills worker 1 again and again while `fit` runs, each time a random while after a step.

    Args:
        job: whose worker.
        seeds: one per kill; decides the while, between nothing and two of the worker's steps.
    """

    def __init__(self, job: CountingJob, seeds: range) -> None:
        super().__init__(name="killer", daemon=True)
        self.job, self.seeds = job, seeds
        self.kills = 0
        self.error: Exception | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            for seed in self.seeds:
                self._kill(random.Random(seed))
            self._next_step()  # the last incarnation works, too
        except Exception as error:  # noqa: BLE001 - raised again where the test waits
            self.error = error
        finally:
            self.stopped.set()

    def _kill(self, draws: random.Random) -> None:
        self._next_step()
        began_s = time.monotonic()
        self._next_step()
        step_s = time.monotonic() - began_s
        time.sleep(draws.uniform(0.0, 2.0) * step_s)
        self.job.cluster.kill("worker", 1)
        self.kills += 1
        self.job.cluster.restart("worker", 1)

    def _next_step(self) -> None:
        """Wait until worker 1 has done one more step than now."""
        steps = self._steps()
        until_s = time.monotonic() + COMES_BACK_S
        while self._steps() <= steps:
            if time.monotonic() > until_s:
                raise TimeoutError(f"worker 1 has done no step for {COMES_BACK_S:g} s")
            time.sleep(LOOK_EVERY_S)

    def _steps(self) -> int:
        return self.job.strategy.stats().worker_steps[1]


class UntilStopped(EpochsOfOneVisit):
    """Ends `fit` after the epoch in which the killer is done; compares every epoch's visits."""

    def __init__(self, job: CountingJob, killer: Killer) -> None:
        super().__init__(job)
        self.killer = killer

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.model.stop_training = self.killer.stopped.is_set()


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[CountingJob]:
    job = CountingJob(
        cluster(workers=2, ps=2), examples=100, counters=WideCounters, placement="round_robin"
    )
    yield job
    job.strategy.close()


def _train_until_killed(job: CountingJob, seeds: range) -> int:
    """Kill worker 1 once for each seed; return in how many epochs, each with all examples."""
    killer = Killer(job, seeds)
    callback = UntilStopped(job, killer)
    killer.start()
    epochs = job.fit(callback, epochs=100_000)
    killer.join()
    if killer.error is not None:
        raise killer.error
    assert killer.kills == len(seeds)
    assert callback.wrong_epochs == {}
    return epochs


# What such a death leaves on each server: tests/unit/one_process/test_requests_of_fit.py.
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(1), range(1, 51)], ids=["1", "50"])
def test_updates_are_atomic(job: CountingJob, seeds: range) -> None:
    before, torn_before = job.updates(), torn_pushes(job)
    epochs = _train_until_killed(job, seeds)
    assert job.updates() == job.updates_after(before, epochs=epochs)
    torn = torn_pushes(job) - torn_before
    print(f"{torn} of {len(seeds)} kills fell between the pushes to two servers")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_gradients_of_rounds_count_once(cluster: Callable[..., LocalCluster], carrier: str) -> None:
    """A round may have the dead worker's gradient on one server, and another round on the other."""
    job = CountingJob(
        cluster(workers=2, ps=2),
        examples=100,
        counters=WideCounters,
        placement="round_robin",
        consistency=tfps.Synchronous(),
    )
    epochs = _train_until_killed(job, range(20))
    stats = job.strategy.stats()
    assert stats.examples_seen == epochs * job.examples
    assert len(set(stats.versions)) == 1
    assert job.updates_of_servers() == stats.versions
    apart = [server.cells()[server.layout.APART] for server in job.strategy.runtime.servers]
    print(f"{torn_pushes(job)} of 20 kills fell between the pushes to two servers: apart {apart}")
    job.strategy.close()
