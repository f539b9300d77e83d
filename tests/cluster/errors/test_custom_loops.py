"""A mistake in a function that `ClusterCoordinator.schedule` runs, and odd things it returns."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.errors.reading import reading
from tests.cluster.errors.test_steps import CheckingOptimizer

X = tf.ones([8, 4])
Y = tf.ones([8, 3])
NOT_A_NUMBER = tf.fill([8, 4], np.nan)

pytestmark = pytest.mark.timeout(180)


class Loop:
    """A model, its optimizer and a coordinator."""

    def __init__(self, strategy: tfps.ParameterServerStrategy, optimizer: Any = None) -> None:
        with strategy.scope():
            self.model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
            self.optimizer = optimizer or keras.optimizers.SGD(0.1)
            self.optimizer.build(self.model.trainable_variables)
        self.coordinator = tfps.ClusterCoordinator(strategy)

    def train(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x, training=True) - y) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def run(self, step: Any, *arguments: Any) -> list[Any]:
        results = [self.coordinator.schedule(step, args=arguments) for _ in range(4)]
        self.coordinator.join()
        return list(self.coordinator.fetch(results))


@pytest.fixture(scope="module")
def loop(strategy: tfps.ParameterServerStrategy) -> Loop:
    return Loop(strategy)


@pytest.mark.repeats
def test_exception_while_tracing(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    @tf.function
    def step() -> Any:
        loop.train(X, Y)
        raise KeyError("wrong key")  # the mistake

    with reading(KeyError, caplog):
        loop.run(step)


@pytest.mark.repeats
def test_shapes_that_do_not_fit(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    @tf.function
    def step() -> Any:
        return loop.train(X, Y[:, :2])  # the mistake

    with reading(ValueError, caplog):
        loop.run(step)


# An operation beside a model is in test_steps.py.
@pytest.mark.repeats
@pytest.mark.quick("False")
@pytest.mark.parametrize("uses_model", [True, False])
def test_failing_operation(uses_model: bool, loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    @tf.function
    def step() -> Any:
        x = tf.debugging.check_numerics(NOT_A_NUMBER, "not a number")  # the mistake
        return loop.train(x, Y) if uses_model else x

    with reading(tf.errors.InvalidArgumentError, caplog) as read:
        loop.run(step)
    assert str(read.error).startswith("not a number : Tensor had NaN values\n\nRaised on worker ")


@pytest.mark.repeats
def test_error_of_an_optimizer_on_a_server_is_not_retried(
    strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop(strategy, CheckingOptimizer(0.1))

    @tf.function
    def step() -> Any:
        return loop.train(NOT_A_NUMBER, Y)

    with reading(tf.errors.InvalidArgumentError, caplog) as read:
        loop.run(step)
    assert "not a number : Tensor had NaN values" in str(read.error)
    assert "in update_step" in str(read.error)


@pytest.mark.repeats
def test_python_function_runs_on_the_chief_as_in_tensorflow(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(values: np.ndarray) -> np.ndarray:
        raise KeyError("wrong key")  # the mistake

    def step_with(function: Any) -> Any:
        @tf.function
        def step() -> Any:
            x = tf.numpy_function(function, [X], tf.float32)
            return loop.train(tf.ensure_shape(x, X.shape), Y)

        return step

    assert np.isfinite(loop.run(step_with(np.negative))).all()
    with reading(tf.errors.UnknownError, caplog) as read:
        loop.run(step_with(wrong))
    assert str(read.error).startswith("KeyError: 'wrong key'\n\nRaised on worker ")


@pytest.mark.repeats
def test_end_of_the_data(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    @tf.function
    def step(iterator: Any) -> Any:
        x, y = next(iterator)  # the mistake
        return loop.train(x, y)

    def make() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors((X, Y))

    iterator = iter(loop.coordinator.create_per_worker_dataset(make))
    with reading(tf.errors.OutOfRangeError, caplog) as read:
        loop.run(step, iterator)
    assert str(read.error).startswith("End of sequence\n\nRaised on worker ")


@pytest.mark.repeats
def test_dataset_function_that_raises(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def make() -> tf.data.Dataset:
        raise KeyError("wrong key")  # the mistake

    with reading(KeyError, caplog):
        iter(loop.coordinator.create_per_worker_dataset(make))


@pytest.mark.repeats
def test_what_a_function_may_return(loop: Loop) -> None:
    def returning(outputs: Any) -> Any:
        @tf.function
        def step() -> Any:
            loss = loop.train(X, Y)
            return outputs(loss)

        return loop.run(step)

    assert returning(lambda loss: None) == [None] * 4
    assert returning(lambda loss: "text") == [b"text"] * 4
    structure = returning(lambda loss: {"ragged": tf.ragged.constant([[1], [2, 3]]), "b": [loss]})
    assert [row.tolist() for row in structure[0]["ragged"]] == [[1], [2, 3]]


@pytest.mark.repeats
def test_function_that_returns_an_object_is_refused(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    @tf.function
    def step() -> Any:
        loop.train(X, Y)
        return object()

    with reading(TypeError, caplog, shows_line=False) as read:
        loop.run(step)
    assert "must return zero or more Tensors" in str(read.error)
