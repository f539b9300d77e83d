"""With one worker, `fit` and its kin give the numbers of Keras on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

LOCAL = "/job:chief/replica:0/task:0/device:CPU:0"
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(100, 8)).astype("float32")
Y = X[:, :3].argmax(1)
NEW_X, NEW_Y = RANDOM.normal(size=(30, 8)).astype("float32"), RANDOM.integers(0, 3, size=30)

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster], carrier: str
) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster(workers=1, ps=1).cluster_resolver)
    yield strategy
    strategy.close()


def _model() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def _fit(model: keras.Model, **options: Any) -> dict[str, list[float]]:
    keras.utils.set_random_seed(7)  # of the order of the examples
    return model.fit(X, Y, batch_size=16, epochs=3, verbose=0, **options).history


def _assert_same_numbers(found: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)


def _assert_same_weights(found: keras.Model, expected: keras.Model) -> None:
    for weight, reference in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(weight, reference, atol=1e-5)


def test_life_of_a_model(strategy: tfps.ParameterServerStrategy, tmp_path: Path) -> None:
    """Fit with validation, evaluate, predict, save, load, single batches: one model, one trace."""
    with tf.device(LOCAL):
        local = _model()
        expected = _fit(local, validation_data=(NEW_X, NEW_Y))
    with strategy.scope():
        model = _model()
    found = _fit(model, validation_data=(NEW_X, NEW_Y))
    _assert_same_numbers(found, expected)
    _assert_same_weights(model, local)
    assert set(found) == {"loss", "accuracy", "val_loss", "val_accuracy"}

    assert model.evaluate(NEW_X, NEW_Y, verbose=0) == pytest.approx(
        local.evaluate(NEW_X, NEW_Y, verbose=0), abs=1e-5
    )
    predictions = model.predict(NEW_X, verbose=0)
    np.testing.assert_allclose(predictions, local.predict(NEW_X, verbose=0), atol=1e-5)

    model.save(tmp_path / "model.keras")
    with tf.device(LOCAL):
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    for weight, reference in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, reference)
    for value, reference in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(value.numpy(), reference.numpy(), err_msg=reference.path)

    losses = [
        each.train_on_batch(X[:10], Y[:10], return_dict=True)["loss"] for each in (model, local)
    ]
    assert float(losses[0]) == pytest.approx(float(losses[1]), abs=1e-5)
    _assert_same_weights(model, local)
    assert strategy.stats().fallback_steps == 0


@pytest.mark.repeats
def test_loaded_model_is_trained_on(strategy: tfps.ParameterServerStrategy, tmp_path: Path) -> None:
    def load() -> keras.Model:
        keras.utils.set_random_seed(3)  # dropout's seed is not in the file
        return keras.saving.load_model(tmp_path / "model.keras")

    with tf.device(LOCAL):
        trained = _model()
        _fit(trained)
        trained.save(tmp_path / "model.keras")
        local = load()
        expected = _fit(local)
    with strategy.scope():
        loaded = load()
    _assert_same_weights(loaded, trained)
    iterations = int(loaded.optimizer.iterations.numpy())
    found = _fit(loaded)
    _assert_same_numbers(found, expected)
    _assert_same_weights(loaded, local)
    assert int(loaded.optimizer.iterations.numpy()) == 2 * iterations > 0
