"""Variables that a traced step makes, or that a failed one leaves, do not disturb other models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf
from keras import layers

import tfps
from tests.unit.numbers.comparison import BATCH, LABELS, Comparison, X, compiled, cross_entropy, fit

pytestmark = pytest.mark.timeout(180)


class DoublingLayer(layers.Layer):
    """A layer whose shape Keras finds by a trace, where it also looks after earlier variables."""

    def call(self, x: Any) -> Any:
        return 2.0 * x


def another() -> keras.Model:
    model = keras.Sequential([keras.Input((8,)), DoublingLayer(), layers.Dense(3)])
    model.compile("sgd", cross_entropy(), metrics=["accuracy"])
    return model


class Adversaries(keras.Model):
    """Two networks without an Input, which the first step builds."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = keras.Sequential([layers.Dense(8)])
        self.critic = keras.Sequential([layers.Dense(1)])
        self.rates = {self.critic: keras.optimizers.SGD(0.1), self.maker: keras.optimizers.Adam()}

    def train_step(self, real: Any) -> dict[str, Any]:
        logs = {}
        for sign, (network, optimizer) in zip((1.0, -1.0), self.rates.items(), strict=True):
            with tf.GradientTape() as tape:
                made = self.critic(self.maker(real[:, :2]))
                loss = sign * (tf.reduce_mean(made) - tf.reduce_mean(self.critic(real)))
            weights = network.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
            logs[f"loss_{sign}"] = loss
        return logs


def test_networks_that_the_first_step_builds(comparison: Comparison) -> None:
    """A later model of the process trains as well."""

    def make() -> keras.Model:
        both = Adversaries()
        both.compile()
        return both

    def use(both: keras.Model) -> dict[str, Any]:
        return both.fit(X, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history

    comparison.run(make, use)
    comparison.run(another)


@pytest.mark.slow
def test_metrics_that_a_scheduled_step_builds(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = compiled()
    coordinator = tfps.ClusterCoordinator(strategy)
    step = tf.function(lambda: model.train_step((X[:BATCH], LABELS[:BATCH])))
    for _ in range(4):
        coordinator.schedule(step)
    coordinator.join()
    assert int(model.optimizer.iterations.numpy()) == 4
    with strategy.scope():
        fit(another())


class Broken(keras.Model):
    """Makes weights, and then has a mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.out = layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.out(x).no_such_attribute


class BrokenStep(Broken):
    """Has the mistake in its step."""

    def call(self, x: Any) -> Any:
        return self.out(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        layers.Dense(3)(data[0])
        return {"loss": self(data[0]).no_such_attribute}


@pytest.mark.quick("BrokenStep")
@pytest.mark.parametrize("kind", [Broken, BrokenStep])
def test_a_mistake_leaves_nothing_behind(
    kind: Callable[[], keras.Model], strategy: tfps.ParameterServerStrategy
) -> None:
    with strategy.scope():
        model = kind()
        model.compile("sgd", "mse")
    with pytest.raises(AttributeError, match="no_such_attribute"):
        fit(model)
    with strategy.scope():
        fit(another())
