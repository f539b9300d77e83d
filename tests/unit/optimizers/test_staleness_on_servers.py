"""The step of each gradient is discounted for its own staleness, which its server knows exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.graphs import graphs_as_traced
from tfps.optimizers import StalenessAware
from tfps.testing import InProcessCluster

GRADIENTS = [0.4, -0.2, 0.3, 0.25]


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with graphs_as_traced(), InProcessCluster(workers=1, ps=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def strategy(cluster: InProcessCluster) -> tfps.ParameterServerStrategy:
    return tfps.ParameterServerStrategy(cluster.cluster_resolver)


numbers = itertools.count()


def inverse(staleness: Any) -> Any:
    """A rule of a user's own."""
    return 1.0 / (staleness + 1.0)


def trained_by(
    strategy: tfps.ParameterServerStrategy, make: Callable[[], Any]
) -> tuple[keras.Variable, Any]:
    """A weight and the optimizer that trains it."""
    with strategy.scope():
        optimizer = make()
        weight = keras.Variable(np.ones(3, "float32"), name=f"w{next(numbers)}")
        optimizer.build([weight])
    return weight, optimizer


def push(
    strategy: tfps.ParameterServerStrategy, weight: Any, gradient: float, version: Any, by: Any
) -> tuple[Any, int]:
    new, staleness = strategy.push(
        {weight.path: np.full(3, gradient, "float32")}, version, optimizer=by
    )
    return new, staleness


@pytest.mark.parametrize(
    ("discount", "factor"),
    [
        ("exponential", lambda s: np.exp(-0.1 * s)),
        (lambda s: 1 / (1 + s * s), lambda s: 1 / (1 + s * s)),
    ],
    ids=["exponential", "own"],
)
def test_each_gradient_has_its_own_rate(
    strategy: tfps.ParameterServerStrategy, discount: Any, factor: Callable[[int], float]
) -> None:
    weight, optimizer = trained_by(
        strategy, lambda: StalenessAware(keras.optimizers.SGD(0.5), discount)
    )
    _, old = strategy.pull([weight.path])
    expected = 1.0
    for number, gradient in enumerate(GRADIENTS):
        # All from the parameters before the first push, so each misses one more.
        _, staleness = push(strategy, weight, gradient, old, optimizer)
        assert staleness == number
        expected -= 0.5 * factor(number) * gradient
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-6)
    assert int(optimizer.iterations.numpy()) == len(GRADIENTS)


def test_adam_does_not_cancel_it(strategy: tfps.ParameterServerStrategy) -> None:
    def first_step(stale: int) -> float:
        other, before = trained_by(strategy, lambda: keras.optimizers.SGD(1.0))
        weight, optimizer = trained_by(
            strategy, lambda: StalenessAware(keras.optimizers.Adam(0.1), inverse)
        )
        _, old = strategy.pull([weight.path])
        for _ in range(stale):
            push(strategy, other, 0.1, old, before)  # every server counts every push
        _, staleness = push(strategy, weight, 0.3, old, optimizer)
        assert staleness == stale
        return float(1.0 - weight.numpy()[0])

    fresh, stale = first_step(0), first_step(3)
    assert fresh == pytest.approx(0.1, rel=1e-4)
    assert stale == pytest.approx(fresh / 4, rel=1e-5)


def test_too_stale_a_gradient_is_dropped(strategy: tfps.ParameterServerStrategy) -> None:
    weight, optimizer = trained_by(
        strategy, lambda: StalenessAware(keras.optimizers.SGD(1.0), "none", drop_above=1)
    )
    _, old = strategy.pull([weight.path])
    before = strategy.stats()
    for _ in range(2):
        push(strategy, weight, 0.25, old, optimizer)
    moved = weight.numpy()
    np.testing.assert_allclose(moved, 0.5)
    for _ in range(3):  # a staleness of 2 each time: what is dropped is no update
        _, staleness = push(strategy, weight, 0.25, old, optimizer)
        assert staleness == 2
    np.testing.assert_array_equal(weight.numpy(), moved)
    after = strategy.stats()
    assert after.updates_applied - before.updates_applied == 2
    assert after.gradients_dropped - before.gradients_dropped >= 3
    assert int(optimizer.iterations.numpy()) == 2


@pytest.mark.repeats
def test_a_custom_loop_uses_it_like_any_optimizer(strategy: tfps.ParameterServerStrategy) -> None:
    coordinator = tfps.ClusterCoordinator(strategy)
    weight, optimizer = trained_by(strategy, lambda: StalenessAware(keras.optimizers.SGD(0.1)))

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * 2.0)
        optimizer.apply_gradients(zip(tape.gradient(loss, [weight.value]), [weight], strict=True))

    for _ in range(5):
        coordinator.schedule(step)
    coordinator.join()
    np.testing.assert_allclose(weight.numpy(), 0.0, atol=1e-6)
    assert int(optimizer.iterations.numpy()) == 5
