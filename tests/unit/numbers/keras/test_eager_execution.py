"""Switches of eager execution: asynchronous operations, and functions that run eagerly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import Comparison, linear

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def asynchronous_execution() -> Iterator[None]:
    tf.config.experimental.set_synchronous_execution(False)
    yield
    tf.config.experimental.set_synchronous_execution(True)


def test_training_ends_asynchronous_execution_and_says_so_once(
    comparison: Comparison, asynchronous_execution: None, caplog: pytest.LogCaptureFixture
) -> None:
    comparison.run(linear)
    assert tf.config.experimental.get_synchronous_execution()
    said = [each for each in caplog.messages if "set_synchronous_execution" in each]
    assert len(said) == 1


@pytest.fixture
def eager_functions() -> Iterator[None]:
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def test_functions_that_run_eagerly_elsewhere_are_graphs_on_workers(
    comparison: Comparison, eager_functions: None
) -> None:
    comparison.run(linear)
    strategy = comparison.strategy
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        count = tf.Variable(0.0)

    @tf.function
    def step() -> tf.Tensor:
        count.assign_add(1.0)
        return tf.constant(2.0)

    assert coordinator.fetch(coordinator.schedule(step)) == 2
    assert count.numpy() == 1
