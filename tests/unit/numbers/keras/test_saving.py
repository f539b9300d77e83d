"""One process reads what a cluster writes with the same numbers, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.numbers.comparison import (
    LOCAL,
    STEPS,
    Comparison,
    X,
    assert_same_state,
    cross_entropy,
    fit,
    iterations,
)

pytestmark = pytest.mark.timeout(180)


def _adam() -> keras.Model:
    """A model without dropout, whose seed is in no file."""
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), cross_entropy(), metrics=["accuracy"])
    return model


def _train_on(model: keras.Model, local: keras.Model) -> None:
    """Check that both train on with the same numbers, counters included."""
    fit(model)
    fit(local)
    assert_same_state(model, local)


def test_whole_models(comparison: Comparison, tmp_path: Path) -> None:
    model, _ = comparison.pair(_adam)
    name = "model.keras"
    fit(model)
    model.save(tmp_path / name)
    with tf.device(LOCAL):
        local = keras.saving.load_model(tmp_path / name)
    assert_same_state(local, model, tolerance=0.0)
    fit(local)
    local.save(tmp_path / name)
    with comparison.strategy.scope():
        model = keras.saving.load_model(tmp_path / name)
    assert iterations(model) == 4 * STEPS
    assert_same_state(model, local, tolerance=0.0)
    _train_on(model, local)


@pytest.mark.repeats
def test_weights(comparison: Comparison, tmp_path: Path) -> None:
    model, local = comparison.pair(_adam)
    path = tmp_path / "a.weights.h5"
    fit(local)
    local.save_weights(path)
    fit(model, epochs=1)  # its counters and their mirrors move, and then back
    model.load_weights(path)
    assert iterations(model) == 2 * STEPS
    assert_same_state(model, local, tolerance=0.0)
    _train_on(model, local)
    model.save_weights(path)
    local.load_weights(path)
    assert_same_state(local, model, tolerance=0.0)


@pytest.mark.repeats
def test_weights_into_a_fresh_model(comparison: Comparison, tmp_path: Path) -> None:
    trained, _ = comparison.pair(_adam)
    fit(trained)
    trained.save_weights(tmp_path / "a.weights.h5")
    model, local = comparison.pair(_adam)
    for each in (model, local):
        each.load_weights(tmp_path / "a.weights.h5")
    predictions = [each.predict(X, verbose=0) for each in (model, local)]
    np.testing.assert_allclose(predictions[0], predictions[1], atol=1e-5)
    _train_on(model, local)


@pytest.mark.repeats
def test_checkpoints(comparison: Comparison, tmp_path: Path) -> None:
    def checkpoint(model: keras.Model) -> Any:
        return tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    model, local = comparison.pair(_adam)
    local.optimizer.build(local.trainable_variables)
    fit(model)
    path = checkpoint(model).save(str(tmp_path / "of the cluster"))
    checkpoint(local).restore(path).assert_consumed()
    assert_same_state(local, model, tolerance=0.0)
    fit(local)
    path = checkpoint(local).save(str(tmp_path / "of one process"))
    checkpoint(model).restore(path).assert_consumed()
    assert iterations(model) == 4 * STEPS
    assert_same_state(model, local, tolerance=0.0)
    _train_on(model, local)


@pytest.mark.repeats
def test_exported_model(comparison: Comparison, tmp_path: Path) -> None:
    model, _ = comparison.pair(_adam)
    fit(model)
    model.export(str(tmp_path / "exported"), verbose=False)
    with tf.device(LOCAL):
        loaded = tf.saved_model.load(str(tmp_path / "exported"))
        served = loaded.serve(X)
    np.testing.assert_allclose(served.numpy(), model.predict(X, verbose=0), atol=1e-5)
