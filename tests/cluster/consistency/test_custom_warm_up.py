"""The first optimizer calls of scheduled functions, which workers take by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import wait_for
from tests.unit.numbers.modes.warm_up_job import (
    CALLS,
    MODES,
    STEPS,
    WORKERS,
    Make,
    X,
    jobs_on,
)
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def make(cluster: Callable[..., LocalCluster]) -> Iterator[Make]:
    """Jobs on the module's cluster."""
    with jobs_on(cluster) as make:
        yield make


@pytest.mark.slow
@pytest.mark.parametrize("name", ["asynchronous", "synchronous", "local rounds"])
def test_it_ends_while_functions_wait(cluster: Callable[..., LocalCluster], name: str) -> None:
    """All were scheduled at the begin; the sum of the steps tells what was trained alone."""
    functions = 40
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=WORKERS, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=MODES[name],
    )
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = keras.Variable(np.zeros([3], "float32"), name="w")
        optimizer = keras.optimizers.SGD(-1.0)
        optimizer.build([weight])

    def batches() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(tf.ones([3])).repeat()

    @tf.function
    def step(batches: Any) -> tf.Tensor:
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        for _ in tf.range(CALLS):
            optimizer.apply([next(batches)], [weight])
        return worker

    dataset = iter(coordinator.create_per_worker_dataset(batches))
    values = [coordinator.schedule(step, args=(dataset,)) for _ in range(functions)]
    coordinator.join()
    workers = [int(value.fetch()) for value in values]
    rounds = int(optimizer.iterations)
    assert 0 < rounds < functions * CALLS
    if name == "asynchronous":
        alone = functions * CALLS - rounds
        assert alone >= WORKERS * STEPS
        assert np.abs(rounds + alone / WORKERS - weight.numpy()[0]) < 1e-4
    assert set(workers) == set(range(WORKERS))
    strategy.close()


@pytest.mark.slow
@pytest.mark.parametrize("comes_back", [True, False], ids=["comes_back", "stays_away"])
def test_a_worker_that_dies(
    cluster: Callable[..., LocalCluster], make: Make, comes_back: bool
) -> None:
    """What it has trained stays. It goes on from the mean; while it is away it owes nothing."""
    steps = 24
    tasks, job = cluster(workers=WORKERS, ps=2), make(tfps.BoundedStaleness(1, warm_up_steps=steps))
    job.warm_up(2 * CALLS)
    first_life, job.taken[1] = job.taken[1], []
    lives = [(job.first, job.taken[0]), (job.first, first_life)]
    tasks.kill("worker", 1)
    try:
        wait_for(lambda: job.take() == 0 and not all(job.strategy.alive_workers()))
        assert len(job.taken[0]) < steps
    finally:
        if comes_back:
            tasks.restart("worker", 1)
    if comes_back:
        wait_for(lambda: all(job.strategy.alive_workers()))
        at_return = job.first
        while not job.taken[1]:
            at_return = job.ours.model.get_weights()
            job.take()
        while len(job.taken[0]) < steps or len(first_life) + len(job.taken[1]) < steps:
            job.take()
        lives.append((at_return, job.taken[1]))
    else:
        while len(job.taken[0]) < steps:
            job.take()
    models = [(job.reference.begin_anew(begin).alone(X[taken]), begin) for begin, taken in lives]
    changes = [[new - old for new, old in zip(*model, strict=True)] for model in models]
    expected = [
        first + sum(parts) / WORKERS for first, *parts in zip(job.first, *changes, strict=True)
    ]
    job.check(expected, since=job.first)
    assert job.iterations == 0
    job.take()
    assert job.iterations == CALLS
    if not comes_back:
        tasks.restart("worker", 1)
        wait_for(lambda: all(job.strategy.alive_workers()))


@pytest.mark.slow
def test_a_worker_that_hangs_is_not_waited_for(
    cluster: Callable[..., LocalCluster], make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And begins with the others when it goes on."""
    for name, value in {"TFPS_PROBE_PERIOD_S": "0.25", "TFPS_PROBE_DEADLINE_S": "1"}.items():
        monkeypatch.setenv(name, value)
    tasks, job = cluster(workers=WORKERS, ps=2), make(tfps.Synchronous(warm_up_steps=STEPS))
    for _ in range(2):
        job.take()
    tasks.suspend("worker", 1)
    try:
        while len(job.taken[0]) < STEPS:
            job.take()
        warm = job.next
        job.take()
        assert job.iterations == CALLS
    finally:
        tasks.resume("worker", 1)
    wait_for(lambda: all(job.strategy.alive_workers()))
    wait_for(lambda: job.take() == 1)
    assert job.iterations == job.next - warm
