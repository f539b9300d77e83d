"""A worker is killed at any moment of its exchanges: at rest every server has applied the same."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.counting import Visits, mean_output, numbered
from tfps.launch import LocalCluster

EXAMPLES, BATCH = 100, 2
STEPS = EXAMPLES // BATCH
X, LABELS = numbered(EXAMPLES)
# The second server's push is long: much of a step lies between the ends of the two pushes.
ITEMS = {"first": 10_000, "second": 3_000_000}
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


class Job:
    """A strategy over two servers with a model that counts visits and applied updates."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, placement="round_robin", batch_callbacks="sampled"
        )
        with self.strategy.scope():
            self.visits = Visits(EXAMPLES)
            self.model = keras.Sequential([keras.Input((4,)), WideCounters()])
            self.model.compile(keras.optimizers.SGD(-1.0), mean_output, metrics=[self.visits])

    def updates(self) -> set[int]:
        """As every item of the weights, the optimizer and both servers have counted them."""
        weights = {int(item) for weight in self.model.get_weights() for item in np.unique(weight)}
        return weights | {int(self.model.optimizer.iterations), *self.strategy.stats().versions}

    def torn_pushes(self) -> int:
        """How often a server had applied a ticket that another one had not.

        Such a ticket comes again, and only one of the two has seen it before.
        """
        servers = self.strategy.runtime.servers
        first, second = (server.cells()[server.books.DUPLICATES] for server in servers)
        return abs(int(first) - int(second))


class Killer(threading.Thread):
    """Kills worker 1 again and again while `fit` runs, each time a random while after a step.

    Args:
        job: whose worker.
        seeds: one per kill; decides the while, between nothing and two of the worker's steps.
    """

    def __init__(self, job: Job, seeds: range) -> None:
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


class UntilStopped(keras.callbacks.Callback):
    """Ends `fit` after the epoch in which the killer is done; compares every epoch's visits."""

    def __init__(self, job: Job, killer: Killer) -> None:
        super().__init__()
        self.job, self.killer = job, killer
        self.wrong_epochs: dict[int, Counter[int]] = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        visits = Counter(self.job.visits.counts())
        if visits != {1: EXAMPLES}:
            self.wrong_epochs[epoch] = visits
        self.model.stop_training = self.killer.stopped.is_set()


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[Job]:
    job = Job(cluster(workers=2, ps=2))
    yield job
    job.strategy.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 53), marks=pytest.mark.slow)], ids=["3", "50"]
)
def test_updates_are_atomic(job: Job, seeds: range) -> None:
    (before,) = job.updates()
    torn_before = job.torn_pushes()
    killer = Killer(job, seeds)
    callback = UntilStopped(job, killer)
    killer.start()
    history = job.model.fit(
        X, LABELS, batch_size=BATCH, epochs=100_000, verbose=0, callbacks=[callback]
    )
    killer.join()
    if killer.error is not None:
        raise killer.error
    assert killer.kills == len(seeds)
    assert callback.wrong_epochs == {}
    assert job.updates() == {before + len(history.epoch) * STEPS}
    torn = job.torn_pushes() - torn_before
    print(f"{torn} of {len(seeds)} kills fell between the pushes to two servers")
