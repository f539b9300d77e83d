"""A worker is lost for good, then another one dies and returns: it does not wait for the first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tfps.launch import LocalCluster

DEADLINE_S = 60.0
MOST_EPOCHS = 500
STEPS = 60

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


class KillTwo(EpochsOfOneVisit):
    """Kills worker 0 for good, then worker 1, and restarts this one before `fit` waits for it.

    It lets training go on until worker 1 has worked once more.
    """

    def __init__(self, job: CountingJob) -> None:
        super().__init__(job)
        self.steps_at_death: int | None = None
        self.works_again = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            self.job.cluster.kill("worker", 0)
            _wait_for(lambda: self.job.strategy.tasks["worker 0"] == "lost")
        if epoch == 2:
            self.job.cluster.kill("worker", 1)
            self.steps_at_death = self.job.strategy.stats().worker_steps[1]
            self.job.cluster.restart("worker", 1, wait=False)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.steps_at_death is not None:
            steps = self.job.strategy.stats().worker_steps[1]
            # A request that was on its way when the worker died may still count.
            self.works_again = steps > self.steps_at_death + 1
            self.model.stop_training = self.works_again


def _wait_for(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


@pytest.fixture(scope="module")
def local(cluster: Callable[..., LocalCluster]) -> LocalCluster:
    return cluster(workers=3, ps=1)


# Quicker: `fit` takes in a returned worker in tests/cluster/training/test_lost_worker.py.
@pytest.mark.conformance
def test_fit_takes_in_who_returns(local: LocalCluster) -> None:
    job = CountingJob(local)
    killer = KillTwo(job)
    epochs = job.fit(killer, epochs=MOST_EPOCHS)
    assert killer.works_again
    assert killer.wrong_epochs == {}
    assert set(job.updates()) == {epochs * job.epoch_steps}
    tasks = job.strategy.tasks
    assert (tasks["worker 0"], tasks["worker 1"]) == ("lost", "alive")

    # A new model is traced for the living workers, and with a validation pass.
    with job.strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(*_arrays(), validation_data=_arrays(), batch_size=4, epochs=2, verbose=0)
    assert int(model.optimizer.iterations) == 2 * 16

    local.restart("worker", 0)
    _wait_for(lambda: job.strategy.tasks["worker 0"] == "alive")
    before = job.strategy.stats().worker_steps[0]
    for _ in range(MOST_EPOCHS):
        job.fit(epochs=1)
        if job.strategy.stats().worker_steps[0] > before:
            break
    assert job.strategy.stats().worker_steps[0] > before
    job.strategy.close()


def _arrays() -> tuple[Any, Any]:
    values = keras.ops.convert_to_numpy(keras.random.normal((64, 4), seed=1))
    return values, values.sum(1, keepdims=True)


# A quicker one that is lost for good evaluates: tests/cluster/training/test_lost_worker.py.
def test_scheduled_functions_run_on_who_returns(local: LocalCluster) -> None:
    strategy = tfps.ParameterServerStrategy(local.cluster_resolver)
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        counter = keras.Variable(0.0)
        optimizer = keras.optimizers.SGD(-1.0)

    ones = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(1.0).repeat())
    iterator = iter(ones)

    @tf.function
    def step(ones: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = next(ones) * counter
        optimizer.apply([tape.gradient(loss, counter.value)], [counter])
        return tf.io.read_file("/proc/self/stat")  # begins with the number of the process

    scheduled = 0

    def run_on(*expected: int) -> None:
        """Schedule steps until all of these workers, and no others, have taken some."""
        nonlocal scheduled
        workers: set[int] = set()
        worker_of = {local.pid("worker", worker): worker for worker in range(3)}
        while workers != set(expected):
            taken = [coordinator.schedule(step, args=(iterator,)) for _ in range(STEPS)]
            coordinator.join()
            scheduled += STEPS
            workers |= {worker_of[int(each.fetch().split()[0])] for each in taken}
            assert workers <= set(expected)
        assert float(keras.ops.convert_to_numpy(counter)) == scheduled

    def is_now(worker: int, state: str) -> bool:
        return strategy.tasks[f"worker {worker}"] == state

    run_on(0, 1, 2)
    local.kill("worker", 0)
    _wait_for(lambda: is_now(0, "lost"))
    run_on(1, 2)
    local.kill("worker", 1)
    run_on(2)
    local.restart("worker", 1)
    _wait_for(lambda: is_now(1, "alive"))
    assert is_now(0, "lost")
    run_on(1, 2)
    local.restart("worker", 0)
    _wait_for(lambda: is_now(0, "alive"))
    run_on(0, 1, 2)
    strategy.close()
