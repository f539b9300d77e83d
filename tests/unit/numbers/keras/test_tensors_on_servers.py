"""Schedules, constraints and optimizers that keep tensors, variables or other resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    STEPS,
    Comparison,
    X,
    assert_same,
    compiled,
    cross_entropy,
    fit,
    linear,
)
from tests.unit.numbers.conftest import Clusters
from tfps.errors import UnsupportedError

pytestmark = pytest.mark.timeout(180)


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """That of most scripts of Transformers: the width is a tensor, made once."""

    def __init__(self, width: int = 128, steps: int = 10) -> None:
        self.width, self.steps = tf.cast(width, tf.float32), steps

    def __call__(self, step: Any) -> Any:
        step = tf.cast(step, tf.float32)
        rising = step * self.steps**-1.5
        return tf.math.rsqrt(self.width) * tf.math.minimum(tf.math.rsqrt(step + 1.0), rising)


class Branches(WarmUp):
    """Uses a tensor in a branch and in a loop."""

    def __call__(self, step: Any) -> Any:
        return tf.cond(step < 3, lambda: self.width * 1e-3, self._sum)

    def _sum(self) -> Any:
        add = lambda i, rate: (i + 1, rate + self.width * 1e-4)  # noqa: E731
        return tf.while_loop(lambda i, _: i < 2, add, (0, 0.01))[1]


class Table(WarmUp):
    """Looks a rate up in more values than TensorFlow captures as a constant by itself."""

    def __init__(self) -> None:
        self.rates = tf.linspace(0.01, 0.1, 300)

    def __call__(self, step: Any) -> Any:
        return tf.gather(self.rates, tf.cast(step, tf.int32))


class Clip(keras.constraints.Constraint):
    def __init__(self, most: float) -> None:
        self.most = tf.constant(most)

    def __call__(self, weights: Any) -> Any:
        return tf.clip_by_value(weights, -self.most, self.most)


class HalvingSGD(keras.optimizers.SGD):
    """Has a tensor of its own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.half = tf.constant(0.5)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(gradient * self.half, variable, learning_rate)


def clipped() -> keras.Model:
    head = keras.layers.Dense(3, kernel_constraint=Clip(0.2))
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6, "relu"), head])
    model.compile(HalvingSGD(WarmUp()), cross_entropy())
    return model


MAKERS: dict[str, Callable[[], keras.Model]] = {
    "schedule, constraint and optimizer": clipped,
    "in branches": lambda: compiled(keras.optimizers.SGD(Branches())),
    "large": lambda: compiled(keras.optimizers.Adam(Table())),
    "callable": lambda: compiled(keras.optimizers.SGD(_function_of(tf.constant(0.05)))),
}


def _function_of(rate: tf.Tensor) -> Callable[[], Any]:
    return lambda: rate * 1.0


@pytest.mark.quick("schedule, constraint and optimizer")
@pytest.mark.parametrize("kind", MAKERS)
def test_tensors_are_constants(kind: str, comparison: Comparison) -> None:
    comparison.run(MAKERS[kind])


class ScheduleOfVariable(WarmUp):
    """Returns the value of a variable that the program assigns."""

    def __init__(self) -> None:
        self.rate = tf.Variable(0.05)

    def __call__(self, step: Any) -> Any:
        return self.rate * 1.0


class SetsRate(keras.callbacks.Callback):
    """Assigns the schedule's variable."""

    def __init__(self, schedule: ScheduleOfVariable, *, each_batch: bool) -> None:
        super().__init__()
        self._schedule, self._each_batch = schedule, each_batch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._schedule.rate.assign(0.1 / (1 + epoch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._each_batch:
            self._schedule.rate.assign_add(0.01)


@pytest.mark.rare
@pytest.mark.quick("False-True")
@pytest.mark.parametrize("each_batch", [False, True])
@pytest.mark.parametrize("made_inside", [True, False])
def test_a_raw_variable_is_followed(
    made_inside: bool, each_batch: bool, comparison: Comparison
) -> None:
    outside = [ScheduleOfVariable(), ScheduleOfVariable()]

    def make() -> keras.Model:
        schedule = ScheduleOfVariable() if made_inside else outside.pop()
        model = linear(keras.optimizers.SGD(schedule))
        model.schedule = schedule
        return model

    def use(model: keras.Model) -> dict[str, Any]:
        callback = SetsRate(model.schedule, each_batch=each_batch)
        losses = fit(model, callbacks=[callback])["loss"]
        model.schedule.rate.assign(0.0)  # nothing moves
        return {"loss": losses, "evaluated": model.evaluate(X, LABELS, verbose=0)}

    comparison.run(make, use)


@pytest.mark.repeats
def test_a_raw_variable_is_followed_in_a_custom_loop(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    def train(model: keras.Model, schedule: ScheduleOfVariable, run: Callable[[Any], None]) -> Any:
        optimizer, loss_of = model.optimizer, cross_entropy()

        @tf.function
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = loss_of(LABELS[:BATCH], model(X[:BATCH]))
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)

        for k in range(STEPS):
            schedule.rate.assign(0.1 * k)
            run(step)
        return model.get_weights()

    def made(schedule: ScheduleOfVariable) -> keras.Model:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.Adam(schedule))
        model.optimizer.build(model.trainable_variables)
        return model

    coordinator = tfps.ClusterCoordinator(strategy)

    def run(step: Any) -> None:
        coordinator.schedule(step)
        coordinator.join()

    here, there = ScheduleOfVariable(), ScheduleOfVariable()
    with strategy.scope():
        distributed = made(there)
    assert_same(train(distributed, there, run), train(made(here), here, lambda step: step()))


class HashTable(WarmUp):
    def __init__(self) -> None:
        values = tf.lookup.KeyValueTensorInitializer([1], [0.2])
        self.table = tf.lookup.StaticHashTable(values, 0.1)

    def __call__(self, step: Any) -> Any:
        return self.table.lookup(tf.cast(step, tf.int32))  # the user's line


class Counting(ScheduleOfVariable):
    def __call__(self, step: Any) -> Any:
        self.rate.assign_add(0.1)  # the user's line
        return self.rate * 1.0


class Python(WarmUp):
    def __call__(self, step: Any) -> Any:
        return tf.py_function(lambda step: 0.1, [step], tf.float32)  # the user's line


def test_what_a_server_cannot_have_is_refused(strategy: tfps.ParameterServerStrategy) -> None:
    """With the line; the process goes on with another model."""
    for kind, received, remedy in (
        (HashTable, "resource", "tf.gather"),
        (Counting, "assignment", "self.add_variable"),
        (Python, "a call of Python", "operations of TensorFlow"),
    ):
        with strategy.scope():
            model = linear(keras.optimizers.SGD(kind()))
        with raises(UnsupportedError, "a schedule", received=received, remedy=remedy) as caught:
            fit(model)
        assert "# the user's line" in str(caught.value)
    with strategy.scope():
        another = linear()
    fit(another)


class VariablesOnServers(WarmUp):
    def __init__(self) -> None:
        self.rates = [keras.Variable(0.1, trainable=False) for _ in range(2)]  # one on each server

    def __call__(self, step: Any) -> Any:
        return self.rates[0] + self.rates[1]  # the user's line


@pytest.mark.rare
def test_a_schedule_of_variables_on_several_servers_is_refused(cluster: Clusters) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, placement="round_robin"
    )
    with strategy.scope():
        model = linear(keras.optimizers.SGD(VariablesOnServers()))
    remedy = "Make it a tf.Variable before the scope"
    with raises(UnsupportedError, "a schedule", received="a variable of", remedy=remedy) as caught:
        fit(model)
    assert "# the user's line" in "".join(str(entry.statement) for entry in caught.traceback)
    strategy.close()
