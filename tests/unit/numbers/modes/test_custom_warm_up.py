"""The first optimizer calls of scheduled functions, which workers take by themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import LOCAL
from tests.unit.numbers.modes.warm_up_job import (
    BATCH,
    CALLS,
    MODES,
    STEPS,
    WORKERS,
    Make,
    Training,
    X,
    jobs_on,
)
from tfps.testing import OneProcess

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def make(cluster: Callable[..., OneProcess]) -> Iterator[Make]:
    """Jobs on the module's cluster."""
    with jobs_on(cluster) as make:
        yield make


@pytest.mark.quick("synchronous")
@pytest.mark.parametrize("name", MODES)
def test_all_go_on_from_the_mean(make: Make, name: str) -> None:
    """With an optimizer that is new, as the momentum shows."""
    mode, functions = MODES[name], 4
    job = make(mode)
    for _ in range(2):
        job.take()
    middle = job.mean()
    job.check(middle, since=job.first)
    job.warm_up()
    mean = job.mean()
    job.check(mean, since=job.first)
    exchanges = job.next // CALLS
    assert (job.iterations, job.strategy.stats().versions) == (0, (exchanges, exchanges))
    # Under local steps workers have slots of their own, and servers take a part of the difference.
    part = 1.0
    is_local = isinstance(mode, tfps.LocalSteps)
    if isinstance(mode, tfps.LocalSteps) and not mode.synchronous:
        part = mode.elasticity or 1 / WORKERS
    with tf.device(LOCAL):
        workers = [Training() for _ in range(WORKERS if is_local else 1)]
    trained = mean
    for _ in range(functions):
        begin = job.next
        alone = workers[job.take() % len(workers)]
        alone.model.set_weights(trained)
        after = alone.alone(X[begin : job.next])
        trained = [old + part * (new - old) for old, new in zip(trained, after, strict=True)]
    found = _of_variables(job.ours, job.ours.model.get_weights())
    for weight, other, before in zip(
        found, _of_variables(job.ours, trained), _of_variables(job.ours, mean), strict=True
    ):
        assert np.linalg.norm(weight - other) <= 1e-5 * np.linalg.norm(other - before)
    assert job.iterations == functions * CALLS


def _of_variables(training: Training, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Without moving averages: one worker of two moves those by half."""
    return [
        weight
        for variable, weight in zip(training.model.weights, weights, strict=True)
        if variable.trainable
    ]


def test_what_is_read_and_written_in_the_middle(make: Make) -> None:
    """Whoever reads has the mean so far; what somebody else adds moves it."""
    job = make(tfps.Asynchronous(warm_up_steps=STEPS))
    kernel = job.ours.model.trainable_variables[0]

    @tf.function
    def read() -> tf.Tensor:
        return kernel + 0.0

    for _ in range(3):
        job.take()
    (mean, *_), (first, *_) = job.mean(), job.first
    seen = job.coordinator.schedule(read).fetch()
    assert np.linalg.norm(seen - mean) <= 1e-5 * np.linalg.norm(mean - first)
    kernel.assign_add(tf.ones(kernel.shape))
    job.warm_up()
    moved = [weight + (index == 0) for index, weight in enumerate(job.mean())]
    job.check(moved, since=job.first)
    job.take()
    assert job.iterations == CALLS


@pytest.mark.slow
@pytest.mark.parametrize("ends_it", ["fit", "restored"])
def test_what_comes_in_the_middle_ends_it(make: Make, ends_it: str, tmp_path: Path) -> None:
    job = make(tfps.Asynchronous(warm_up_steps=STEPS))
    model = job.ours.model
    model.compile(job.ours.optimizer, "mse")
    for _ in range(2):
        job.take()
    mean, steps = job.mean(), 0
    if ends_it == "fit":
        rows = X[:4].reshape(-1, 6)
        model.fit(rows, rows[:, :3], batch_size=BATCH, verbose=0)
        steps = 4
    else:
        manager = tfps.CheckpointManager(model, tmp_path)
        manager.save()
        manager.wait()
        manager.restore_latest()
        job.check(mean, since=job.first)
    assert job.iterations == steps
    job.take()
    assert job.iterations == steps + CALLS


@pytest.mark.slow
def test_a_job_that_goes_on_takes_none(make: Make, tmp_path: Path) -> None:
    """After a warm-up that was in its middle, too."""
    mode = tfps.Synchronous(warm_up_steps=STEPS)
    before, after = make(mode), make(mode)
    for job in (before, after):
        job.ours.model.compile(job.ours.optimizer, "mse")
    before.take()
    manager = tfps.CheckpointManager(before.ours.model, tmp_path)
    manager.save()
    manager.wait()
    weights = before.ours.model.get_weights()
    tfps.CheckpointManager(after.ours.model, tmp_path).restore_latest()
    after.check(weights, since=before.first)
    after.take()
    assert after.iterations == CALLS


@pytest.mark.slow
def test_two_optimizers_in_two_functions(cluster: Callable[..., OneProcess]) -> None:
    """Each function reads what the other one trains, as this worker has it."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=WORKERS, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.Asynchronous(warm_up_steps=STEPS),
    )

    class Game:
        def __init__(self) -> None:
            self.weights = [keras.Variable(np.ones([3], "float32"), name=n) for n in "ab"]
            self.optimizers = [keras.optimizers.SGD(0.1, momentum=0.9) for _ in self.weights]
            for optimizer, weight in zip(self.optimizers, self.weights, strict=True):
                optimizer.build([weight])

        def move(self, player: int) -> None:
            mine, other = self.weights[player], self.weights[1 - player]
            self.optimizers[player].apply([0.5 * other - 0.1 * mine], [mine])

        def on_worker(self, player: int) -> tf.Tensor:
            self.move(player)
            return tf.distribute.coordinator.experimental_get_current_worker_index()

    with strategy.scope():
        game = Game()
    moves = [tf.function(functools.partial(game.on_worker, player)) for player in range(2)]
    coordinator = tfps.ClusterCoordinator(strategy)
    taken: list[list[int]] = [[] for _ in range(WORKERS)]
    turn = 0
    while min(map(len, taken)) < STEPS:
        player = turn // WORKERS % 2  # so that each worker has all turns, if they alternate
        taken[int(coordinator.schedule(moves[player]).fetch())].append(player)
        turn += 1
    found = [weight.numpy() for weight in game.weights]
    results = []
    for turns in taken:
        with tf.device(LOCAL):
            alone = Game()
            for player in turns:
                alone.move(player)
            results.append([weight.numpy() for weight in alone.weights])
    for player, weight in enumerate(found):
        expected = np.mean([result[player] for result in results], axis=0)
        assert np.linalg.norm(weight - expected) <= 1e-5 * np.linalg.norm(expected - 1)
    assert [int(optimizer.iterations) for optimizer in game.optimizers] == [0, 0]
    coordinator.schedule(moves[0]).fetch()
    assert [int(optimizer.iterations) for optimizer in game.optimizers] == [1, 0]
    strategy.close()
