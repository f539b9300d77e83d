"""`fit` ends with a profile of TensorBoard, and with asynchronous eager execution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps

pytestmark = pytest.mark.timeout(180)

STEPS = 40


def linear(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


def batches(_context: tf.distribute.InputContext) -> tf.data.Dataset:
    """A pipeline on a worker that calls Python code of the chief."""

    def example(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        value = tf.py_function(lambda x: x / 1000, [tf.cast(number, tf.float32)], tf.float32)
        value = tf.reshape(value, [1])
        return value, value

    return tf.data.Dataset.range(1000).map(example).batch(4)


def test_a_profile_while_the_input_calls_python(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    model = linear(strategy)
    profile = keras.callbacks.TensorBoard(tmp_path, profile_batch=(5, 10))
    model.fit(batches, steps_per_epoch=STEPS, verbose=0, callbacks=[profile])
    assert int(model.optimizer.iterations.numpy()) == STEPS
    assert list(tmp_path.rglob("*.xplane.pb"))


@pytest.fixture
def asynchronous_execution() -> Iterator[None]:
    tf.config.experimental.set_synchronous_execution(False)
    yield
    tf.config.experimental.set_synchronous_execution(True)


@pytest.mark.repeats
def test_asynchronous_execution(
    strategy: tfps.ParameterServerStrategy, asynchronous_execution: None
) -> None:
    model = linear(strategy)
    x = np.ones((STEPS, 1), "float32")
    model.fit(x, x, batch_size=1, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == STEPS
