"""`trainable` set between two fits without `compile`: training goes on as compiled, as Keras's."""

from __future__ import annotations

from typing import Any

import keras
import pytest
from keras import layers

from tests.messages import check_message
from tests.unit.numbers.comparison import Comparison, cross_entropy, fit

pytestmark = pytest.mark.timeout(180)


def nested() -> keras.Model:
    base = keras.Sequential(
        [keras.Input((8,)), layers.Dense(6, "relu"), layers.BatchNormalization()]
    )
    return keras.Sequential([keras.Input((8,)), base, layers.Dense(3)])


@pytest.mark.rare
@pytest.mark.quick("True")
@pytest.mark.parametrize("before", [True, False])
def test_flags_are_those_of_the_first_fit(
    comparison: Comparison, caplog: pytest.LogCaptureFixture, before: bool
) -> None:
    """Layers are frozen, or thawed; `compile` makes it count, and it is told of once until then."""

    def make() -> keras.Model:
        model = nested()
        model.layers[0].trainable = before
        model.compile("adam", cross_entropy())
        return model

    def use(model: keras.Model) -> dict[str, Any]:
        losses = fit(model)["loss"]
        model.layers[0].trainable = not before
        losses += fit(model)["loss"] + fit(model)["loss"]
        assert model.layers[0].layers[0].trainable is not before
        model.compile(keras.optimizers.Adam(0.01), cross_entropy())
        losses += fit(model)["loss"]
        return {"loss": losses, "weights": model.get_weights()}

    comparison.run(make, use)
    warnings = [r.getMessage() for r in caplog.records if "trainable was changed" in r.getMessage()]
    assert len(warnings) == 1
    check_message(warnings[0], "dense", received="trainable", remedy="model.compile()")


@pytest.mark.repeats
def test_two_models_share_layers(comparison: Comparison) -> None:
    """Each goes by the flags of its own first step, as the two of a GAN do."""

    def make() -> list[keras.Model]:
        first = keras.Sequential([keras.Input((8,)), layers.Dense(3)])
        both = keras.Sequential([keras.Input((8,)), layers.Dense(8), first])
        return [first, both]

    def use(models: list[keras.Model]) -> dict[str, Any]:
        first, both = models
        first.compile("sgd", cross_entropy())
        losses = fit(first)["loss"]
        first.trainable = False
        both.compile("sgd", cross_entropy())
        for _ in range(2):
            losses += fit(both)["loss"] + fit(first)["loss"]
        return {"loss": losses, "weights": both.get_weights()}

    comparison.run(make, use)
