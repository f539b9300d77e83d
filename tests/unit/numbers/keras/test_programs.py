"""Programs that change or reuse models between two calls of `fit`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.numbers.comparison import (
    LABELS,
    STEPS,
    Comparison,
    X,
    assert_same,
    compiled,
    cross_entropy,
    fit,
    iterations,
    lie_on_servers,
)

layers = keras.layers

pytestmark = pytest.mark.timeout(180)


@pytest.mark.rare
def test_weights_are_changed_between_fits(comparison: Comparison) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        losses = fit(model)["loss"]
        model.set_weights([weight * 0.9 for weight in model.get_weights()])
        losses += fit(model)["loss"]
        model.layers[0].kernel.assign(model.layers[0].kernel * 0.5)
        losses += fit(model, initial_epoch=2, epochs=4)["loss"]
        return {"loss": losses}

    comparison.run(use=use)


@pytest.mark.repeats
def test_models_that_share_a_layer_train_in_turn(comparison: Comparison) -> None:
    def make() -> list[keras.Model]:
        inputs = keras.Input((8,))
        shared = layers.Dense(4, "tanh")(inputs)
        models = [keras.Model(inputs, layers.Dense(n)(shared)) for n in (3, 8)]
        models[0].compile("adam", cross_entropy())
        models[1].compile("adam", "mse")
        return models

    def use(models: list[keras.Model]) -> dict[str, Any]:
        losses = []
        for _ in range(2):
            losses += fit(models[0])["loss"] + fit(models[1], X, X)["loss"]
        return {"loss": losses}

    comparison.run(make, use)


@pytest.mark.repeats
def test_twins_of_the_same_names_are_two_models(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        one, other = compiled(), compiled()
        clone = keras.models.clone_model(one)
    fit(one)
    kept = one.get_weights()
    fit(other)
    assert_same(one.get_weights(), kept, tolerance=0.0)
    clone.set_weights(kept)
    clone.compile("sgd", cross_entropy())
    fit(clone)
    assert_same(one.get_weights(), kept, tolerance=0.0)
    assert iterations(clone) == 2 * STEPS


@pytest.mark.repeats
def test_new_model_after_clear_session(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        old = compiled()
    fit(old)
    keras.backend.clear_session()
    with strategy.scope():
        new = compiled()
    for model in (new, old):
        before = iterations(model) if model.optimizer.built else 0
        fit(model)
        assert iterations(model) == before + 2 * STEPS


@pytest.mark.repeats
def test_seeds_repeat_a_run(strategy: tfps.ParameterServerStrategy) -> None:
    def run() -> list[np.ndarray]:
        keras.utils.set_random_seed(5)
        with strategy.scope():
            model = compiled()
        model.fit(X, LABELS, batch_size=16, epochs=2, verbose=0)
        weights: list[np.ndarray] = model.get_weights()
        return weights

    assert_same(run(), run(), tolerance=1e-6)


class Deferred(keras.Model):
    """A model that has no variables before it has seen data."""

    def __init__(self) -> None:
        super().__init__()
        self.head = layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return self.head(inputs)


@pytest.mark.repeats
@pytest.mark.parametrize("first", ["predict", "evaluate"])
def test_first_use_builds_on_the_servers(
    first: str, strategy: tfps.ParameterServerStrategy
) -> None:
    with strategy.scope():
        model = Deferred()
        model.compile("sgd", cross_entropy())
    if first == "evaluate":
        model.evaluate(X, LABELS, verbose=0)
    else:
        assert model.predict(X, verbose=0).shape == (len(X), 3)
    fit(model)
    assert lie_on_servers(strategy, model.trainable_variables)
    assert iterations(model) == 2 * STEPS
    expected = X @ model.get_weights()[0] + model.get_weights()[1]
    assert_same(model.predict(X, verbose=0), expected)
