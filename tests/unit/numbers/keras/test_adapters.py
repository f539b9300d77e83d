"""LoRA and quantisation of layers, before the first `fit` and between two."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.messages import raises
from tests.unit.numbers.comparison import LABELS, Comparison, X, compiled, cross_entropy, fit

pytestmark = [pytest.mark.rare, pytest.mark.timeout(180)]


def _compile(model: keras.Model) -> keras.Model:
    model.compile(keras.optimizers.Adam(0.01), cross_entropy(), metrics=["accuracy"])
    return model


def _with_lora() -> keras.Model:
    model = compiled()
    model.get_layer("hidden").enable_lora(2)
    return _compile(model)


def _quantised() -> keras.Model:
    model = compiled()
    model.quantize("int8")
    return _compile(model)


def _quantised_with_lora() -> keras.Model:
    model = _quantised()
    model.get_layer("hidden").enable_lora(2)
    return _compile(model)


def _embedding_with_lora() -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((8,), dtype="int32"), layers.Embedding(10, 4), layers.Flatten()]
    )
    model.layers[0].enable_lora(2)
    model.add(layers.Dense(3))
    return _compile(model)


def _fit_and_use(model: keras.Model) -> dict[str, Any]:
    losses = fit(model, np.abs(X * 4).astype("int32") % 10 if _takes_ids(model) else X)["loss"]
    return {"loss": losses}


def _takes_ids(model: keras.Model) -> bool:
    return "int" in model.inputs[0].dtype


@pytest.mark.parametrize(
    "make", [_with_lora, _quantised, _quantised_with_lora, _embedding_with_lora]
)
def test_before_the_first_fit(make: Any, comparison: Comparison) -> None:
    comparison.run(make, _fit_and_use)


@pytest.mark.parametrize("change", ["enable_lora", "quantize"])
def test_between_two_fits(
    change: str, comparison: Comparison, strategy: tfps.ParameterServerStrategy
) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        losses = fit(model)["loss"]
        distributed = model is models[0]
        with strategy.scope() if distributed else contextlib.nullcontext():
            hidden = model.get_layer("hidden")
            if change == "enable_lora":
                hidden.enable_lora(2)
            else:
                hidden.quantize("int8")
            _compile(model)
        losses += fit(model)["loss"]
        evaluated = model.evaluate(X, LABELS, verbose=0)
        return {"loss": losses, "evaluate": evaluated, "predict": model.predict(X, verbose=0)}

    models: list[keras.Model] = []

    def make() -> keras.Model:
        models.insert(0, compiled())
        return models[0]

    comparison.run(make, use)


def test_a_quantised_model_predicts_and_evaluates(comparison: Comparison) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        return {
            "predict": model.predict(X, verbose=0),
            "on the workers": model.predict(X, batch_size=4, verbose=0),
            "evaluate": model.evaluate(X, LABELS, verbose=0),
        }

    comparison.run(_quantised, use)


@pytest.mark.parametrize("change", ["enable_lora", "quantize"])
def test_outside_of_the_scope_is_refused(
    change: str, strategy: tfps.ParameterServerStrategy
) -> None:
    with strategy.scope():
        model = compiled()
    fit(model, epochs=1)
    hidden = model.get_layer("hidden")
    _ = hidden.enable_lora(2) if change == "enable_lora" else hidden.quantize("int8")
    _compile(model)
    with raises(
        tfps.errors.UnsupportedError,
        "hidden/",
        received="outside of strategy.scope()",
        remedy="with strategy.scope():",
    ):
        fit(model)


def test_without_compiling_anew_training_goes_on_as_compiled(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    with strategy.scope():
        model = compiled()
    fit(model, epochs=1)
    hidden = model.get_layer("hidden")
    with strategy.scope():
        hidden.enable_lora(2)
    adapters = [hidden.lora_kernel_a, hidden.lora_kernel_b]
    before = [variable.numpy() for variable in (hidden._kernel, *adapters)]
    fit(model)
    kernel, *others = [variable.numpy() for variable in (hidden._kernel, *adapters)]
    assert np.abs(kernel - before[0]).max() > 1e-3
    for after, value in zip(others, before[1:], strict=True):
        np.testing.assert_array_equal(after, value)
