"""Optimizers that are made elsewhere, wrapped, clipped together, or called by the program."""

from __future__ import annotations

import contextlib
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
    classifier,
    compiled,
    cross_entropy,
    fit,
    iterations,
    lie_on_servers,
)
from tfps.errors import UnsupportedError

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def servers() -> int:
    """Some optimizers look at the whole model, which two servers hold."""
    return 2


@pytest.mark.rare
def test_optimizer_from_outside_the_scope_and_its_learning_rate(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    optimizer = keras.optimizers.Adam(0.05)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, cross_entropy(), metrics=["accuracy"])
    history = fit(model, epochs=8)
    assert history["loss"][-1] < history["loss"][0]
    assert iterations(model) == 8 * STEPS
    assert lie_on_servers(strategy, optimizer.variables)

    before = model.get_weights()
    optimizer.learning_rate = 0.0
    fit(model)
    assert_same(model.get_weights(), before, tolerance=0.0)
    optimizer.learning_rate.assign(0.05)
    fit(model)
    assert any((a != b).any() for a, b in zip(model.get_weights(), before, strict=True))


@pytest.mark.rare
@pytest.mark.parametrize("made_inside", [True, False])
def test_an_optimizer_that_is_built_outside_of_the_scope(
    made_inside: bool, strategy: tfps.ParameterServerStrategy
) -> None:
    """The class of the outer one is older than the first strategy, that of the inner one newer."""

    class Own(keras.optimizers.Nadam):
        def build(self, var_list: Any) -> None:
            super().build(var_list)
            self.steps = self.add_variable(shape=(), dtype="float32", name="steps")

    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    with strategy.scope() if made_inside else contextlib.nullcontext():
        inner = Own(0.05, use_ema=True)
        model.compile(keras.optimizers.LossScaleOptimizer(inner), cross_entropy())
    model.optimizer.build(model.trainable_variables)
    slots = [v for v in inner.variables if v.shape == (8, 3)]
    assert len(slots) == 3
    assert lie_on_servers(strategy, [*slots, inner.steps]), "not on the chief first"
    history = fit(model, epochs=8)
    assert history["loss"][-1] < history["loss"][0]
    assert lie_on_servers(strategy, model.optimizer.variables)


def _multiple(**options: Any) -> Any:
    hidden, other = keras.optimizers.Adam(0.01, **options), keras.optimizers.SGD(0.1)
    return keras.optimizers.MultiOptimizer(lambda v: hidden if "hidden" in v.path else other)


MAKERS = {
    "each with a global norm of its own": lambda: compiled(_multiple(global_clipnorm=0.1)),
    "loss scale around several": lambda: compiled(
        keras.optimizers.LossScaleOptimizer(_multiple(global_clipnorm=0.1), dynamic_growth_steps=3)
    ),
    "loss scale": lambda: compiled(
        keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01, clipnorm=0.5), dynamic_growth_steps=3
        )
    ),
}


@pytest.mark.repeats
@pytest.mark.parametrize("name", MAKERS)
def test_wrapped_optimizers(name: str, comparison: Comparison) -> None:
    comparison.run(MAKERS[name])


def _one_matrix() -> keras.Model:
    """A model whose trained variables all lie on one of the two servers."""
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3, use_bias=False)])
    optimizer = keras.optimizers.SGD(1.0, global_clipnorm=0.1, gradient_accumulation_steps=2)
    model.compile(optimizer, cross_entropy())
    return model


@pytest.mark.repeats
def test_accumulated_gradient_of_one_server_is_clipped_by_its_norm(comparison: Comparison) -> None:
    comparison.run(_one_matrix)


def test_accumulated_gradient_of_several_servers_is_refused(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    with strategy.scope():
        model = compiled(
            keras.optimizers.Adam(0.01, global_clipnorm=0.5, gradient_accumulation_steps=2)
        )
    with raises(
        UnsupportedError,
        "global_clipnorm with gradient_accumulation_steps",
        received="2 parameter servers",
        remedy="clipnorm or clipvalue",
    ):
        fit(model)


@pytest.mark.rare
def test_optimizer_called_on_the_chief(comparison: Comparison) -> None:
    """A loop of the program's own, without a coordinator: the servers apply each update."""

    def use(model: keras.Model) -> dict[str, Any]:
        loss_function = cross_entropy()
        losses = []
        for begin in range(0, len(X), BATCH):
            batch = slice(begin, begin + BATCH)
            with tf.GradientTape() as tape:
                loss = loss_function(LABELS[batch], model(X[batch], training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            losses.append(float(loss))
        return {"losses": losses}

    before = comparison.strategy.stats().updates_applied
    model = comparison.run(lambda: compiled(keras.optimizers.Adam(0.01)), use)
    assert iterations(model) == STEPS
    assert comparison.strategy.stats().updates_applied == before + STEPS


class Momentum(keras.optimizers.Optimizer):
    """An optimizer of a user's own, with a slot and a schedule."""

    def build(self, variables: Any) -> None:
        if self.built:
            return
        super().build(variables)
        self.velocities = [self.add_variable_from_reference(v, name="velocity") for v in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        velocity = self.velocities[self._get_variable_index(variable)]
        self.assign(velocity, 0.9 * velocity + gradient)
        self.assign_sub(variable, learning_rate * velocity)


class InverseRoot(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step: Any) -> Any:
        return 0.1 * tf.math.rsqrt(tf.cast(step + 1, tf.float32))


@pytest.mark.repeats
def test_own_optimizer_and_schedule(comparison: Comparison) -> None:
    model = comparison.run(lambda: compiled(Momentum(learning_rate=InverseRoot())))
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1 * (2 * STEPS + 1) ** -0.5)


@pytest.mark.repeats
@pytest.mark.parametrize(
    "schedule",
    [
        keras.optimizers.schedules.PiecewiseConstantDecay([3, 6], [0.1, 0.05, 0.01]),
        keras.optimizers.schedules.CosineDecay(0.1, 8, warmup_steps=2, warmup_target=0.2),
        keras.optimizers.schedules.CosineDecayRestarts(0.1, 3),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_schedules(schedule: Any, comparison: Comparison) -> None:
    comparison.run(lambda: compiled(keras.optimizers.SGD(schedule)))


class HalvesItsRate(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        self.optimizer.learning_rate = self.optimizer.learning_rate * 0.5
        return super().train_step(data)


@pytest.mark.repeats
def test_learning_rate_is_set_in_a_step(comparison: Comparison) -> None:
    def make() -> keras.Model:
        model = HalvesItsRate([keras.Input((8,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.5), cross_entropy())
        return model

    model = comparison.run(make)
    assert float(model.optimizer.learning_rate.numpy()) == 0.5 ** (1 + 2 * STEPS)


@pytest.mark.repeats
def test_classifier_has_variables_on_both_servers(strategy: tfps.ParameterServerStrategy) -> None:
    """The other tests of this folder rely on it."""
    with strategy.scope():
        model = classifier()
    assert len({variable.value.device for variable in model.trainable_variables}) == 2
