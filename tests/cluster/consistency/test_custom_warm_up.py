"""The first optimizer calls of scheduled functions, which workers take by themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import wait_for
from tfps.consistency.mode import Mode
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

LOCAL = "/job:chief/replica:0/task:0/device:CPU:0"
BATCH, CALLS, STEPS = 8, 2, 6  # of a step; of optimizers in a function; of the warm-up
WORKERS = 2
X = np.random.default_rng(0).normal(size=(200, BATCH, 6)).astype("float32")


class Training:
    """A model with moving averages, and a function that takes several steps with momentum."""

    def __init__(self) -> None:
        keras.utils.set_random_seed(1)
        self.model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.BatchNormalization(momentum=0.9),
                keras.layers.Dense(3),
            ]
        )
        self.begin_anew()

    def begin_anew(self, weights: Sequence[np.ndarray] | None = None) -> Training:
        """With an optimizer that is new."""
        self.optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        self.optimizer.build(self.model.trainable_variables)
        if weights is not None:
            self.model.set_weights(weights)
        return self

    def _step(self, rows: tf.Tensor) -> None:
        weights = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(rows, training=True) - rows[:, :3]))
        self.optimizer.apply(tape.gradient(loss, weights), weights)

    def steps(self, x: tf.Tensor) -> tf.Tensor:
        """Answers the worker that takes them."""
        for number in tf.range(tf.shape(x)[0]):
            self._step(x[number])
        return tf.distribute.coordinator.experimental_get_current_worker_index()

    def alone(self, x: np.ndarray) -> list[np.ndarray]:
        """In this process, without a strategy; answers the weights."""
        with tf.device(LOCAL):
            for rows in x:
                self._step(tf.constant(rows))
        return list(self.model.get_weights())


class Job:
    """A training on a cluster, one function at a time, and what one process makes of it.

    Args:
        strategy: with two servers.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        self.strategy, self.coordinator = strategy, tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            self.ours = Training()
        self.function = tf.function(
            self.ours.steps, input_signature=[tf.TensorSpec([None, BATCH, 6])]
        )
        self.first = self.ours.model.get_weights()
        with tf.device(LOCAL):
            self.reference = Training()
        self.taken: list[list[int]] = [[] for _ in range(WORKERS)]  # batches of each worker
        self.next = 0

    def take(self, calls: int = CALLS) -> int:
        """Let some worker take steps; answers which."""
        batches = range(self.next, self.next + calls)
        self.next += calls
        rows = tf.constant(X[batches.start : batches.stop])
        worker = int(self.coordinator.schedule(self.function, args=(rows,)).fetch())
        self.taken[worker] += batches
        return worker

    def warm_up(self, steps: int = STEPS) -> None:
        """Until each worker has done so many calls."""
        while min(map(len, self.taken)) < steps:
            self.take()
            assert self.next < len(X) // 2

    def mean(self) -> list[np.ndarray]:
        """Of the weights of processes, each of which has trained what one of the workers has."""
        return _mean(
            [
                self.reference.begin_anew(self.first).alone(X[batches])
                for batches in self.taken
                if batches
            ]
        )

    def check(self, expected: Sequence[np.ndarray], *, since: Sequence[np.ndarray]) -> None:
        """Compare the weights on the servers, relative to how far they have moved."""
        found = self.ours.model.get_weights()
        for weight, other, before in zip(found, expected, since, strict=True):
            distance = np.linalg.norm(other - before)
            assert np.linalg.norm(weight - other) <= 1e-5 * distance

    @property
    def iterations(self) -> int:
        return int(self.ours.optimizer.iterations)


def _mean(models: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Of the weights of several models."""
    return [np.mean(weights, axis=0) for weights in zip(*models, strict=True)]


Make = Callable[[Any], Job]


@pytest.fixture
def make(cluster: Callable[..., LocalCluster]) -> Iterator[Make]:
    """Jobs on the module's cluster."""
    jobs: list[Job] = []

    def make(mode: Any) -> Job:
        resolver = cluster(workers=WORKERS, ps=2).cluster_resolver
        jobs.append(
            Job(tfps.ParameterServerStrategy(resolver, placement="round_robin", consistency=mode))
        )
        return jobs[-1]

    yield make
    for job in jobs:
        job.strategy.close()


MODES: dict[str, Mode] = {
    "asynchronous": tfps.Asynchronous(warm_up_steps=STEPS),
    "synchronous": tfps.Synchronous(warm_up_steps=STEPS),
    "backup worker": tfps.Synchronous(1, warm_up_steps=STEPS),
    "bounded": tfps.BoundedStaleness(1, warm_up_steps=STEPS),
    "dynamic": tfps.DynamicBoundedStaleness(1, 3, warm_up_steps=STEPS),
    "local steps": tfps.LocalSteps(CALLS, warm_up_steps=STEPS),
    "local rounds": tfps.LocalSteps(CALLS, synchronous=True, warm_up_steps=STEPS),
    "elastic": tfps.LocalSteps(CALLS, elasticity=0.5, warm_up_steps=STEPS),
}


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
def test_two_optimizers_in_two_functions(cluster: Callable[..., LocalCluster]) -> None:
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
