"""A worker dies while `fit` runs: every example is still seen once, every update applied once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest

import tfps
from tests.cluster.counting import UnitGradients, Visits, mean_output, numbered
from tfps.launch import LocalCluster

EXAMPLES, BATCH, STEPS = 2000, 2, 1000
X, LABELS = numbered(EXAMPLES)
# So many epochs take minutes: a worker takes seconds to start, and `fit` ends once it has worked.
MOST_EPOCHS = 500

pytestmark = pytest.mark.timeout(240)


class Job:
    """A strategy with a model that counts visits of examples and applied updates."""

    def __init__(self, cluster: LocalCluster, **options: Any) -> None:
        self.cluster = cluster
        self.strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, batch_callbacks="sampled", **options
        )
        with self.strategy.scope():
            self.visits = Visits(EXAMPLES)
            self.model = keras.Sequential([keras.Input((4,)), UnitGradients()])
            self.model.compile(keras.optimizers.SGD(-1.0), mean_output, metrics=[self.visits])

    def fit(self, *callbacks: keras.callbacks.Callback, epochs: int) -> int:
        """Train; answers how many epochs it took."""
        history = self.model.fit(
            X, LABELS, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=list(callbacks)
        )
        return len(history.epoch)

    def updates(self) -> list[int]:
        """As both weights, the optimizer and the servers' books have counted them."""
        counts = [*self.model.get_weights(), self.model.optimizer.iterations.numpy()]
        return [int(count) for count in counts] + [self.strategy.stats().updates_applied]


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[Job]:
    job = Job(cluster(workers=2, ps=1))
    yield job
    if job.cluster.status("worker", 1) is not None:
        # TensorFlow crashes when a process connects anew while it still waits for a lost worker.
        job.cluster.restart("worker", 1)
        while not all(job.strategy.alive_workers()):
            time.sleep(0.1)
    job.strategy.close()


class KillWorker(keras.callbacks.Callback):
    """Ends worker 1 in the middle of an epoch, and starts it again if asked to.

    With a restart it lets training go on until the new incarnation has worked.
    """

    def __init__(self, job: Job, *, restart: bool) -> None:
        super().__init__()
        self.job = job
        self.wrong_epochs: dict[int, Counter[int]] = {}  # how many examples were seen how often
        self.steps_at_death: int | None = None
        self.steps_after = 0
        self._before = job.strategy.stats()
        self.tasks_after: dict[str, str] = {}
        self._starter = threading.Thread(target=self._start) if restart else None

    def _start(self) -> None:
        self.job.cluster.restart("worker", 1)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._before = self.job.strategy.stats()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch % 10 or self.steps_at_death is not None:
            return
        now = self.job.strategy.stats()
        has_worked = now.worker_steps[1] > self._before.worker_steps[1]
        # Sampled hooks lag behind: this one may come when the epoch is all but over.
        if has_worked and now.updates_applied - self._before.updates_applied < 0.8 * STEPS:
            self.job.cluster.kill("worker", 1)
            self.steps_at_death = self.job.strategy.stats().worker_steps[1]
            if self._starter:
                self._starter.start()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        visits = Counter(self.job.visits.counts())
        if visits != {1: EXAMPLES}:
            self.wrong_epochs[epoch] = visits
        stats = self.job.strategy.stats()
        self.steps_after, self.tasks_after = stats.worker_steps[1], stats.tasks
        if self._starter and self.works_again:
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        if self._starter:
            self._starter.join()

    @property
    def works_again(self) -> bool:
        """Whether worker 1 has done steps after its death."""
        # A request that was on its way when the worker died may still count.
        return self.steps_at_death is not None and self.steps_after > self.steps_at_death + 1


def test_killed_and_restarted(job: Job) -> None:
    before = job.strategy.stats()
    updates = job.updates()[0]
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=MOST_EPOCHS)
    after = job.strategy.stats()
    assert killer.wrong_epochs == {}
    assert job.updates() == [updates + epochs * STEPS] * 4
    assert after.examples_seen - before.examples_seen == epochs * EXAMPLES
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert after.incarnations[1] > before.incarnations[1]
    assert after.tasks["worker 1"] == "alive"
    assert sum(after.worker_steps) - sum(before.worker_steps) == epochs * STEPS


@pytest.mark.conformance
def test_killed_for_good(job: Job) -> None:
    updates = job.updates()[0]
    killer = KillWorker(job, restart=False)
    assert job.fit(killer, epochs=2) == 2  # the second one without it from the start
    assert killer.steps_at_death is not None
    assert killer.wrong_epochs == {}
    assert job.updates() == [updates + 2 * STEPS] * 4
    assert killer.tasks_after["worker 1"] == "lost"
    assert killer.steps_at_death is not None
    assert not killer.works_again
