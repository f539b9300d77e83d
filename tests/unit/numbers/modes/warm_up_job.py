"""Scheduled functions that warm up, one at a time, and what one process makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import LOCAL
from tfps.consistency.mode import Mode

BATCH, CALLS, STEPS = 8, 2, 6  # of a step; of optimizers in a function; of the warm-up
WORKERS = 2
X = np.random.default_rng(0).normal(size=(200, BATCH, 6)).astype("float32")
MODES: dict[str, Mode] = {
    "asynchronous": tfps.Asynchronous(warm_up_steps=STEPS),
    "synchronous": tfps.Synchronous(warm_up_steps=STEPS),
    "backup worker": tfps.Synchronous(1, warm_up_steps=STEPS),
    "bounded": tfps.BoundedStaleness(1, warm_up_steps=STEPS),
    "local steps": tfps.LocalSteps(CALLS, warm_up_steps=STEPS),
    "local rounds": tfps.LocalSteps(CALLS, synchronous=True, warm_up_steps=STEPS),
    "elastic": tfps.LocalSteps(CALLS, elasticity=0.5, warm_up_steps=STEPS),
}


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


Make = Callable[[Mode], Job]


@contextlib.contextmanager
def jobs_on(cluster: Callable[..., Any]) -> Iterator[Make]:
    """Makes jobs of modes, which are closed at the end.

    Args:
        cluster: gives one of so many workers and servers.
    """
    jobs: list[Job] = []

    def make(mode: Mode) -> Job:
        resolver = cluster(workers=WORKERS, ps=2).cluster_resolver
        jobs.append(
            Job(tfps.ParameterServerStrategy(resolver, placement="round_robin", consistency=mode))
        )
        return jobs[-1]

    yield make
    for job in jobs:
        job.strategy.close()
