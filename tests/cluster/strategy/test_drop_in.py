"""Code written for TensorFlow's pair runs when the two names are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import Visits, cross_entropy, numbered
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster], carrier: str
) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
    )
    yield strategy
    strategy.close()


@pytest.fixture(scope="module")
def coordinator(strategy: tfps.ParameterServerStrategy) -> tfps.ClusterCoordinator:
    return tfps.ClusterCoordinator(strategy)


@pytest.mark.repeats
def test_subclasses_of_tensorflows_pair(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    assert isinstance(strategy, tf.distribute.ParameterServerStrategy)
    assert isinstance(coordinator, tf.distribute.coordinator.ClusterCoordinator)
    assert tfps.ClusterCoordinator(strategy) is coordinator
    assert coordinator.strategy is strategy


@pytest.mark.repeats
def test_raw_variables_are_tensorflows_own(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        scalar = tf.Variable(1.0)
        table = tf.Variable(tf.reshape(tf.range(8.0), [4, 2]))
    assert isinstance(scalar, tf.Variable)
    assert "/job:ps" in scalar.device
    assert type(table).__name__ == "ShardedVariable"  # TensorFlow does not export the class
    assert [shard.shape for shard in table.variables] == [(2, 2), (2, 2)]
    assert len({shard.device for shard in table.variables}) == 2
    for variable in (scalar, *table.variables):
        assert not isinstance(getattr(variable, "_v", variable), ServerVariable)
    np.testing.assert_array_equal(
        tf.convert_to_tensor(table), np.arange(8, dtype="float32").reshape(4, 2)
    )


def test_scheduled_functions(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)

    def per_worker() -> tf.data.Dataset:
        return tf.data.Dataset.range(1, 4).repeat()

    iterator = iter(coordinator.create_per_worker_dataset(per_worker))
    before = strategy.stats().fallback_steps

    @tf.function
    def step(iterator: Any) -> tf.Tensor:
        value = next(iterator)
        total.assign_add(value)
        return value

    values = [coordinator.schedule(step, args=(iterator,)) for _ in range(12)]
    coordinator.join()
    assert coordinator.done()
    fetched = coordinator.fetch(values)
    assert [int(value.fetch()) for value in values] == [int(value) for value in fetched]
    assert set(map(int, fetched)) <= {1, 2, 3}
    assert int(total.numpy()) == sum(map(int, fetched))
    assert strategy.stats().fallback_steps - before == 12  # it has raw variables only
    coordinator.schedule(tf.function(lambda: tf.constant(1)))  # and this one has none at all
    assert strategy.stats().fallback_steps - before == 12
    coordinator.join()


@pytest.mark.rare
def test_function_that_nobody_keeps(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    with strategy.scope():
        weight = keras.Variable(2.0)
    values = [
        coordinator.schedule(tf.function(lambda factor=factor: weight * factor))
        for factor in (1.0, 3.0)
    ]
    assert coordinator.fetch(values) == [2.0, 6.0]


@pytest.mark.repeats
@pytest.mark.conformance
def test_error_in_a_scheduled_function(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    with strategy.scope():
        weight = keras.Variable(np.array(2.0, "float32"))

    @tf.function
    def check(limit: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(weight * 1.0, limit, message="weight too large")
        return weight * 3.0

    coordinator.schedule(check, args=(tf.constant(1.0),))
    with pytest.raises(tf.errors.InvalidArgumentError, match="weight too large"):
        coordinator.join()
    result = coordinator.schedule(check, args=(tf.constant(9.0),))
    coordinator.join()
    assert float(result.fetch()) == 6.0


class Picky(keras.Sequential):
    """Refuses large inputs when it runs, and inputs of five features when it is traced."""

    def train_step(self, data: Any) -> Any:
        x, _ = data
        if x.shape[-1] == 5:
            raise LookupError("five features")
        tf.debugging.assert_less(x, 100.0, message="input too large")
        return super().train_step(data)


@pytest.mark.repeats
@pytest.mark.conformance
def test_error_in_a_train_step(strategy: tfps.ParameterServerStrategy) -> None:
    x, labels = numbered(40)
    bad = x.copy()
    bad[20, 0] = 1000.0
    visits = []
    with strategy.scope():
        model = Picky([keras.layers.Dense(3)])
        visits.append(Visits(40))
        model.compile("sgd", cross_entropy, metrics=visits)
    with pytest.raises(LookupError, match="five features"):
        model.fit(np.zeros([40, 5], "float32"), labels, batch_size=4, verbose=0)
    with strategy.scope():
        model = Picky([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", cross_entropy, metrics=visits)
    with pytest.raises(tf.errors.InvalidArgumentError, match="input too large"):
        model.fit(bad, labels, batch_size=4, verbose=0)
    iterations = int(model.optimizer.iterations.numpy())
    model.fit(x, labels, batch_size=4, verbose=0)
    assert visits[0].counts() == [1] * 40
    assert len(set(strategy.stats().versions)) == 1  # also what was cancelled in an exchange
    assert int(model.optimizer.iterations.numpy()) == iterations + 10
