"""`evaluate` and `predict` run on the workers, exactly and in the input's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.input.numbered_examples import (
    BATCH,
    BATCHES,
    EXAMPLES,
    LABELS,
    X,
    batches,
    dataset,
)

pytestmark = pytest.mark.timeout(180)

INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "batch_size": BATCH},
    "tensors": lambda: {"x": tf.constant(X), "batch_size": BATCH},
    "dataset": lambda: {"x": dataset()},
    "dataset of unknown length": lambda: {"x": dataset().filter(lambda x, y: True)},
    "generator": lambda: {"x": batches()},
}


def _logits(model: keras.Model) -> np.ndarray:
    kernel, bias = model.get_weights()
    return X @ kernel + bias


@pytest.mark.quick("arrays")
@pytest.mark.parametrize("kind", INPUTS)
def test_predict_runs_on_the_workers_in_order(
    kind: str, model: keras.Model, strategy: tfps.ParameterServerStrategy
) -> None:
    before = sum(strategy.stats().worker_evaluation_steps)
    rows = model.predict(**INPUTS[kind](), verbose=0)
    np.testing.assert_allclose(rows, _logits(model), atol=1e-5)
    assert sum(strategy.stats().worker_evaluation_steps) - before == BATCHES


@pytest.mark.repeats
def test_predict_sees_new_weights(model: keras.Model) -> None:
    model.predict(X, batch_size=BATCH, verbose=0)
    model.set_weights([w + 1.0 for w in model.get_weights()])
    rows = model.predict(X, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(rows, _logits(model), atol=1e-4)


@pytest.mark.repeats
def test_small_prediction_stays_on_the_chief(
    model: keras.Model, strategy: tfps.ParameterServerStrategy
) -> None:
    before = strategy.stats().worker_evaluation_steps
    rows = model.predict(X[:BATCH], verbose=0)
    np.testing.assert_allclose(rows, _logits(model)[:BATCH], atol=1e-5)
    assert strategy.stats().worker_evaluation_steps == before


@pytest.mark.repeats
def test_callbacks_see_every_batch_and_can_stop(model: keras.Model) -> None:
    seen: list[int] = []

    class Stops(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(len(logs["outputs"]))
            if batch == 8:
                self.model.stop_predicting = True

    rows = model.predict(X, batch_size=BATCH, verbose=0, callbacks=[Stops()])
    assert seen == [BATCH] * 9
    np.testing.assert_allclose(rows, _logits(model)[:72], atol=1e-5)
    assert len(model.predict(X, batch_size=BATCH, steps=9, verbose=0)) == 72


@pytest.mark.repeats
def test_predict_within_fit(model: keras.Model) -> None:
    rows: list[int] = []

    class Predicts(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            rows.append(len(self.model.predict(X, batch_size=BATCH, verbose=0)))

    model.fit(X, LABELS, batch_size=BATCH, epochs=2, verbose=0, callbacks=[Predicts()])
    assert rows == [EXAMPLES, EXAMPLES]


@pytest.mark.repeats
def test_several_outputs_and_steps_per_execution(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        inputs = keras.Input((4,))
        model = keras.Model(
            inputs,
            {"twice": keras.layers.Rescaling(2.0)(inputs), "dense": keras.layers.Dense(2)(inputs)},
        )
        model.compile("sgd", "mse", steps_per_execution=3)
    before = sum(strategy.stats().worker_evaluation_steps)
    outputs = model.predict(X, batch_size=BATCH, verbose=0)
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(outputs["twice"], 2 * X, atol=1e-5)
    np.testing.assert_allclose(outputs["dense"], X @ kernel + bias, atol=1e-5)
    assert sum(strategy.stats().worker_evaluation_steps) - before == BATCHES


@pytest.mark.repeats
def test_evaluate_visits_each_example_once_on_every_worker(
    model: keras.Model, strategy: tfps.ParameterServerStrategy, visits: Callable[[], list[int]]
) -> None:
    def slow(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        (turns,) = tf.while_loop(lambda i: i < 20_000, lambda i: [i + 1], [0])
        return x, y + tf.cast(turns - 20_000, y.dtype)

    before = strategy.stats().worker_evaluation_steps
    model.evaluate(dataset().map(slow), verbose=0)
    assert visits() == [1] * EXAMPLES
    steps = np.subtract(strategy.stats().worker_evaluation_steps, before)
    assert steps.sum() == BATCHES
    assert (steps > 0).all()
