"""A custom loop whose functions call their optimizer several times, with pauses between."""

from __future__ import annotations

import time
from typing import Any

import keras
import tensorflow as tf

import tfps

DEADLINE_S = 120.0


class ManyCalls:
    """Two weights, one on each server, that grow by one with each call of the optimizer.

    A worker that is killed or stopped is most likely between two calls of a function.

    Args:
        strategy: with two servers.
        calls: of the optimizer in a function.
        pause_s: before each call but the first.
    """

    def __init__(
        self, strategy: tfps.ParameterServerStrategy, *, calls: int = 4, pause_s: float = 0.01
    ) -> None:
        self.strategy, self.calls, self.pause_s = strategy, calls, pause_s
        self.coordinator = tfps.ClusterCoordinator(strategy)
        self.traces = self.scheduled = 0
        with strategy.scope():
            self.model = keras.Model()
            self.weights = [
                self.model.add_weight(shape=(), initializer="zeros", name=name) for name in "ab"
            ]
            self.optimizer = keras.optimizers.SGD(-1.0)
            self.model.compile(self.optimizer)
            self.model.built = True
            self.optimizer.build(self.weights)
        self.step = tf.function(self._step)

    def _step(self) -> None:
        self.traces += 1
        for number in tf.range(self.calls):
            one = self._one(number)
            self.optimizer.apply([one, one], self.weights)

    def _one(self, number: tf.Tensor) -> tf.Tensor:
        """Return a gradient, some time after the reply to the call before."""
        with tf.control_dependencies([tf.identity(self.weights[0].value)]):
            begin = tf.timestamp()
        until = begin + tf.where(number > 0, tf.constant(self.pause_s, tf.float64), 0.0)
        end = tf.while_loop(lambda now: now < until, lambda _: (tf.timestamp(),), [begin])
        with tf.control_dependencies(end):
            return tf.constant(1.0) + 0.0

    def schedule(self, functions: int) -> None:
        for _ in range(functions):
            self.coordinator.schedule(self.step)
        self.scheduled += functions

    @property
    def expected(self) -> int:
        """The number of calls in all functions."""
        return self.scheduled * self.calls

    def iterations(self) -> int:
        return int(self.optimizer.iterations.numpy())

    def wait_for(self, calls: int) -> None:
        """Wait until `calls` calls are counted."""
        ends_at = time.monotonic() + DEADLINE_S
        while self.counted("staleness")[0] < calls:
            assert time.monotonic() < ends_at
            time.sleep(0.02)

    def values(self) -> dict[str, float]:
        """The weights, by their servers."""
        return {weight.value.device: float(weight.numpy()) for weight in self.weights}

    def counted(self, name: str) -> list[int]:
        """By server: a number of the ledger, or ``"staleness"``: pushes that were taken."""
        servers: list[Any] = self.strategy.runtime.servers
        if name == "staleness":
            return [
                int(s.cells()[s.layout.histograms : s.layout.duration(0, 0)].sum()) for s in servers
            ]
        return [int(s.cells()[getattr(s.layout, name)]) for s in servers]
