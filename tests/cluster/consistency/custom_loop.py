"""A custom loop with known gradients: the number of each function determines what it adds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

TABLE = np.random.default_rng(3).normal(size=(1000, 3)).astype("float32")
SLOW_S = 0.02
DEADLINE_S = 60.0


class CustomLoop:
    """Two weights, one on each server, and a function that trains them.

    The gradient of function i is row i of `TABLE` plus the weights: it says from which parameters
    it was computed.

    Args:
        strategy: with two servers.
        optimizer: of Keras; made in its scope.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy, optimizer: Any) -> None:
        self.strategy = strategy
        self.coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            self.weights = [keras.Variable(np.ones([3], "float32"), name=n) for n in "ab"]
            self.optimizer = keras.optimizers.get(optimizer)
            self.optimizer.build(self.weights)
        self.step = tf.function(self._step)
        self._updates_before = 0

    def start_again(self) -> CustomLoop:
        """Begin with the first weights and count from zero; traces stay."""
        for weight in self.weights:
            weight.assign(np.ones([3], "float32"))
        self._updates_before += self.updates
        return self

    def _step(self, number: tf.Tensor, slow: tf.Tensor, wrong: tf.Tensor) -> tf.Tensor:
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        gradients = [tf.gather(TABLE, number) + weight for weight in self.weights]
        waits = tf.logical_or(slow < 0, tf.logical_and(slow > 0, worker == 1))
        until = tf.timestamp() + tf.where(waits, tf.constant(SLOW_S, tf.float64), 0.0)
        end = tf.while_loop(lambda now: now < until, lambda _: (tf.timestamp(),), [until - SLOW_S])
        check = tf.debugging.Assert(wrong == 0, ["wrong on purpose"])
        with tf.control_dependencies([*end, check]):
            gradients = [tf.identity(gradient) for gradient in gradients]
        self.optimizer.apply(gradients, self.weights)
        return worker

    def schedule(self, count: int, *, first: int = 0, slow: int = 0, wrong: int = -1) -> list[Any]:
        """Schedule functions; return values that will be the workers that ran them.

        Args:
            count: how many.
            first: the number of the first one.
            slow: 1: worker 1 takes its time; -1: all workers do.
            wrong: the number of one that raises an error.
        """
        zero = tf.constant(0)
        return [
            self.coordinator.schedule(
                self.step,
                args=(
                    tf.constant(number),
                    tf.constant(slow),
                    tf.constant(1) if number == wrong else zero,
                ),
            )
            for number in range(first, first + count)
        ]

    def run(self, count: int, **options: int) -> list[int]:
        """Schedule functions and wait for them; return the worker that ran each."""
        workers = self.schedule(count, **options)
        self.coordinator.join()
        return [int(worker.fetch()) for worker in workers]

    @property
    def updates(self) -> int:
        """The updates that the optimizer has counted."""
        return int(self.optimizer.iterations.numpy()) - self._updates_before


def wait_for(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    ends_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


def survive_a_death(loop: CustomLoop, tasks: LocalCluster) -> None:
    """Kill one of two workers that meet in rounds, and start it again: no round waits for it."""
    workers = loop.schedule(300, slow=-1)
    wait_for(lambda: loop.updates > 10)
    tasks.kill("worker", 1)
    starter = threading.Thread(target=tasks.restart, args=("worker", 1))
    starter.start()
    loop.coordinator.join()
    starter.join()
    counts = np.bincount([int(worker.fetch()) for worker in workers], minlength=2)
    assert 150 <= loop.updates <= 301
    assert counts[1] > 10
    assert len(set(loop.strategy.stats().versions)) == 1
    wait_for(lambda: all(loop.strategy.alive_workers()))
    before = loop.updates
    wait_for(lambda: set(loop.run(20)) == {0, 1})
    assert loop.updates > before
