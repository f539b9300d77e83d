"""A model of a cluster becomes a SavedModel at any moment, and any program loads it."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.harness.command import run_command

PLAIN_PROGRAM = """
import sys
import numpy as np
import tensorflow as tf

x, outputs, *paths = sys.argv[1:]
for path in paths:
    serve = tf.saved_model.load(path).signatures["serving_default"]
    (argument,) = serve.structured_input_signature[1]
    (output,) = serve(**{argument: tf.constant(np.load(x))}).values()
    np.save(f"{outputs}/{path.rsplit('/', 1)[1]}.npy", output)
"""
X = np.random.default_rng(0).normal(size=(32, 6)).astype("float32")
LABELS = np.random.default_rng(1).integers(0, 3, 32)

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster_size() -> dict[str, int]:
    return {"workers": 1, "ps": 2}


@pytest.fixture
def model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, "relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def test_saved_before_and_after_everything_else(model: keras.Model, tmp_path: Path) -> None:
    """The calls of a model leave functions behind; none of them may get into a file."""
    expected: dict[str, np.ndarray] = {}

    def save(name: str) -> None:
        tf.saved_model.save(model, str(tmp_path / name))
        expected[name] = model(X, training=False).numpy()

    def fit() -> None:
        model.fit(X, LABELS, batch_size=8, epochs=1, verbose=0)

    save("new")
    fit()
    save("trained")
    model.export(str(tmp_path / "exported"), verbose=False)
    expected["exported"] = expected["trained"]
    save("after_export")
    np.testing.assert_allclose(model.predict(X, verbose=0), expected["trained"], atol=1e-6)
    save("after_predict")
    model.evaluate(X, LABELS, batch_size=8, verbose=0)
    fit()
    save("trained_again")
    model.export(str(tmp_path / "exported_again"), verbose=False)
    expected["exported_again"] = expected["trained_again"]
    np.testing.assert_allclose(model.predict(X, verbose=0), expected["trained_again"], atol=1e-6)
    assert np.abs(expected["trained_again"] - expected["trained"]).max() > 1e-3

    np.save(tmp_path / "x.npy", X)
    paths = [tmp_path / name for name in expected]
    arguments: list[str | Path] = ["-c", PLAIN_PROGRAM, tmp_path / "x.npy", tmp_path, *paths]
    result = run_command([sys.executable, *arguments], deadline_s=120)
    assert result.returncode == 0, result
    for name, prediction in expected.items():
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), prediction, atol=1e-6)


def test_saved_in_a_callback(model: keras.Model, tmp_path: Path) -> None:
    predictions = []

    class SaveEachEpoch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            predictions.append(self.model.predict(X, verbose=0))
            tf.saved_model.save(self.model, str(tmp_path / str(epoch)))

    model.fit(X, LABELS, batch_size=8, epochs=2, verbose=0, callbacks=[SaveEachEpoch()])
    for epoch, prediction in enumerate(predictions):
        serve = tf.saved_model.load(str(tmp_path / str(epoch))).signatures["serving_default"]
        (argument,) = serve.structured_input_signature[1]
        (found,) = serve(**{argument: tf.constant(X)}).values()
        np.testing.assert_allclose(found, prediction, atol=1e-6)
