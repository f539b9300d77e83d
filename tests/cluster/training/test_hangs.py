"""`fit` ends with a profile of TensorBoard, and with asynchronous eager execution."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.harness.command import run_command

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


ASYNCHRONOUS_BEFORE = """
import keras, numpy as np, tensorflow as tf, tfps
tf.config.experimental.set_synchronous_execution(False)
x, y = np.ones((320, 8), "float32"), np.ones((320, 3), "float32")
with tfps.LocalCluster(workers=2, ps=2) as cluster:
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    print("synchronous:", tf.config.experimental.get_synchronous_execution())
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
    model.fit(x, y, batch_size=16, epochs=2, verbose=0)
    model.predict(x, verbose=0)
    for _ in range(4):
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
        model.fit(data, epochs=2, verbose=0)
    lives = strategy.stats().worker_lives
    print("steps:", int(model.optimizer.iterations.numpy()), "lives:", lives)
    strategy.close()
"""


@pytest.mark.slow
def test_asynchronous_execution_before_the_strategy(tmp_path: Path) -> None:
    """The tasks would execute so, too: pipelines of datasets ended a worker, or waited for ever."""
    (tmp_path / "before.py").write_text(ASYNCHRONOUS_BEFORE)
    result = run_command([sys.executable, "before.py"], deadline_s=120, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "synchronous: True" in result.stdout
    assert "steps: 200 lives: (1, 1)" in result.stdout
