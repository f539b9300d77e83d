"""Workers that compute on GPUs; parameters lie in the main memory of the servers.

On a machine that has one: make test ARGS="--gpus tests/cluster/devices/test_gpu.py"
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.bridge.variables.server_variable import ServerVariable

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not tf.config.list_physical_devices("GPU"), reason="there is no GPU, or no --gpus"
    ),
]


@pytest.fixture(scope="module")
def cluster_size() -> dict[str, int]:
    return {"workers": 1, "ps": 1}


def test_numbers_of_one_machine(strategy: tfps.ParameterServerStrategy) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 16)).astype("float32")
    y = random.integers(0, 4, 256)

    def build() -> keras.Model:
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [
                keras.Input((16,)),
                keras.layers.Dense(32, "relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(4, "softmax"),
            ]
        )
        model.compile(
            keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
        return model

    with tf.device("/device:CPU:0"):
        local = build()
        options: dict[str, Any] = {"batch_size": 32, "shuffle": False, "verbose": 0}
        expected = local.fit(x, y, epochs=2, **options).history
        predicted = local.predict(x, batch_size=32, verbose=0)
    with strategy.scope():
        model = build()
    found = model.fit(x, y, epochs=2, **options).history
    assert all("GPU" in device for device in strategy.extended.worker_devices)
    assert all(
        isinstance(v.value, ServerVariable) and "/job:ps" in v.value.device
        for v in model.trainable_variables
    )
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-3)
    for one, two in zip(local.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(two, one, atol=1e-3)  # GPUs add in another order
    found_predictions = model.predict(x, batch_size=32, verbose=0)
    np.testing.assert_allclose(found_predictions, predicted, atol=1e-3)


def test_the_chief_leaves_memory_to_workers(strategy: tfps.ParameterServerStrategy) -> None:
    del strategy  # it has connected
    for gpu in tf.config.get_visible_devices("GPU"):
        assert tf.config.experimental.get_memory_growth(gpu)
