"""Half precision, XLA, and steps that run eagerly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.numbers.comparison import (
    LABELS,
    STEPS,
    Comparison,
    X,
    compiled,
    cross_entropy,
    fit,
    iterations,
    lie_on_servers,
)

pytestmark = pytest.mark.timeout(180)
# Of numbers with 8 or 11 bits, which a batch sums in another order.
TOLERANCE = 0.02


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Iterator[str]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


@pytest.mark.rare
@pytest.mark.quick("mixed_float16")
@pytest.mark.parametrize(
    "policy", ["mixed_float16", "mixed_bfloat16", "bfloat16", "float64"], indirect=True
)
def test_policies(policy: str, comparison: Comparison) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        return {**fit(model, validation_data=(X, LABELS)), "y": model.predict(X, verbose=0)}

    model = comparison.run(use=use, tolerance=TOLERANCE)
    scales = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scales == (policy == "mixed_float16")


@pytest.mark.rare
def test_xla_for_the_whole_step_is_ignored_with_a_reason(
    comparison: Comparison, caplog: pytest.LogCaptureFixture
) -> None:
    model, _ = comparison.pair(lambda: compiled(jit_compile=True))
    for _ in range(2):
        fit(model, epochs=1)
    warnings = [m for m in caplog.messages if "ignores jit_compile=True" in m]
    assert len(warnings) == 1
    assert iterations(model) == 2 * STEPS


class CompiledPart(keras.Model):
    """Compiles what it computes, as the warning advises."""

    def __init__(self) -> None:
        super().__init__()
        self.head = keras.layers.Dense(3)

    def build(self, input_shape: Any) -> None:
        self.head.build(input_shape)

    @tf.function(jit_compile=True)
    def expensive(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.nn.tanh(self.head(inputs))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.expensive(inputs)


@pytest.mark.rare
def test_xla_inside_of_call(comparison: Comparison) -> None:
    def make() -> keras.Model:
        model = CompiledPart()
        model.compile("sgd", cross_entropy())
        return model

    comparison.run(make)


class WatchedModel(keras.Sequential):
    """Notes whether its step ran eagerly, and looks at numbers as one does when debugging."""

    eager: list[bool]

    def train_step(self, data: Any) -> Any:
        self.eager.append(tf.executing_eagerly() and bool(np.isfinite(np.asarray(data[0])).all()))
        return super().train_step(data)


@pytest.mark.rare
@pytest.mark.parametrize("where", ["outside the scope", "in the scope"])
def test_eager_steps_run_on_the_chief(
    comparison: Comparison, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    def make() -> keras.Model:
        model = WatchedModel([keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization()])
        model.add(keras.layers.Dense(3))
        model.eager = []
        model.compile("adam", cross_entropy(), run_eagerly=True, metrics=["accuracy"])
        return model

    def use(model: keras.Model) -> dict[str, Any]:
        if where == "outside the scope":
            return use_here(model)
        with model.distribute_strategy.scope():
            return use_here(model)

    def use_here(model: keras.Model) -> dict[str, Any]:
        numbers = fit(model, validation_data=(X, LABELS))
        batch = model.train_on_batch(X[:8], LABELS[:8])
        return {
            **numbers,
            "batch": batch,
            "predicted": model.predict(X, verbose=0),
            "evaluated": model.evaluate(X, LABELS, verbose=0),
        }

    model = comparison.run(make, use)
    assert list(model.eager) == [True] * (2 * STEPS + 1)
    assert iterations(model) == 2 * STEPS + 1
    assert lie_on_servers(comparison.strategy, model.trainable_variables)
    assert sum("run_eagerly=True" in message for message in caplog.messages) == 1

    model.compile("adam", cross_entropy())
    model.eager.clear()
    fit(model)
    assert not any(model.eager)
