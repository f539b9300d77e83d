"""A strategy on `InProcessCluster` does what one on a cluster does, and is found when it closes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.harness.leaks import assert_no_leaks
from tests.messages import raises
from tfps.errors import ClusterError, ConfigError, StrategyClosed
from tfps.optimizers import server_update
from tfps.testing import InProcessCluster

Make = Callable[..., tfps.ParameterServerStrategy]
X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


def _model() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return model


@pytest.mark.repeats
@pytest.mark.tfps_one_process(workers=1, ps=2)
def test_one_worker_gives_the_numbers_of_keras(tfps_one_process: InProcessCluster) -> None:
    plain = _model()
    strategy = tfps.ParameterServerStrategy(tfps_one_process.cluster_resolver)
    with strategy.scope():
        model = _model()
    found = [m.fit(X, Y, batch_size=8, shuffle=False, verbose=0) for m in (model, plain)]
    np.testing.assert_allclose(found[0].history["loss"], found[1].history["loss"], rtol=1e-5)
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(
        model.evaluate(X, Y, batch_size=8, verbose=0), plain.evaluate(X, Y, verbose=0), rtol=1e-5
    )
    np.testing.assert_allclose(
        model.predict(X, batch_size=8, verbose=0), plain.predict(X, verbose=0), atol=1e-5
    )


def test_saving_and_checkpoints(make_strategy: Make, tmp_path: Path) -> None:
    strategy = make_strategy()
    with strategy.scope():
        model = _model()
    before = [weight.copy() for weight in model.get_weights()]
    model.save(tmp_path / "model.keras")
    manager = tfps.CheckpointManager(model, tmp_path / "checkpoints")
    manager.save()
    manager.wait()
    model.set_weights([weight + 1 for weight in before])
    assert manager.restore_latest() is not None
    manager.close()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for expected, ours, theirs in zip(
        before, model.get_weights(), loaded.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)
        np.testing.assert_array_equal(theirs, expected)


class Largest(keras.metrics.Metric):
    """A metric with a part of its state that no step changes."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.largest = self.add_variable((), "zeros")
        self.limit = self.add_variable((), "ones")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_true)))

    def result(self) -> Any:
        return self.largest


@pytest.mark.repeats
@pytest.mark.parametrize("compiled_items", [server_update.MIN_COMPILED_ITEMS, 0])
def test_a_step_leaves_a_part_of_a_merged_metric_alone(
    make_strategy: Make, monkeypatch: pytest.MonkeyPatch, compiled_items: int
) -> None:
    """Nor does it matter that a push is a kernel, which what users write is no part of."""
    monkeypatch.setattr(server_update, "MIN_COMPILED_ITEMS", compiled_items)
    tfps.metrics.register_merge(
        Largest, lambda left, right: [tf.maximum(a, b) for a, b in zip(left, right, strict=True)]
    )
    with make_strategy().scope():
        model = _model()
        model.compile("adam", "mse", metrics=[Largest()])
    history = model.fit(X, Y, batch_size=8, verbose=0)
    assert history.history["largest"] == [Y.max()]


def test_a_custom_loop_with_raw_variables(make_strategy: Make) -> None:
    """Raw variables lie on the servers in turn, and a worker's dataset on the worker."""
    strategy = make_strategy()
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        totals = [tf.Variable(0.0) for _ in range(2)]
    assert [v.device for v in totals] == list(strategy.runtime.topology.servers)
    dataset = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(1, 100).repeat())

    @tf.function
    def add(iterator: Any) -> tf.Tensor:
        number = tf.cast(next(iterator), tf.float32)
        for total in totals:
            total.assign_add(number)
        return number

    iterator = iter(dataset)
    results = [coordinator.schedule(add, args=(iterator,)) for _ in range(6)]
    coordinator.join()
    expected = sum(float(result.fetch()) for result in results)
    assert [float(total.numpy()) for total in totals] == [expected, expected]


def test_an_error_on_a_worker_reaches_the_chief(make_strategy: Make) -> None:
    strategy = make_strategy()
    with strategy.scope():
        model = _model()

    @tf.function
    def wrong() -> tf.Tensor:
        check = tf.debugging.Assert(
            tf.reduce_sum(model.trainable_variables[0]) > 1e9, ["on purpose"]
        )
        with tf.control_dependencies([check]):
            return tf.constant(0)

    strategy.coordinator.schedule(wrong)
    with pytest.raises(tf.errors.InvalidArgumentError, match="on purpose"):
        strategy.coordinator.join()


@pytest.mark.rare
def test_the_block_closes_its_strategies() -> None:
    with assert_no_leaks():
        with (
            InProcessCluster(workers=1, ps=1) as cluster,
            InProcessCluster(workers=1, ps=1) as other,
        ):
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
            untouched = tfps.ParameterServerStrategy(other.cluster_resolver)
            with strategy.scope():
                model = _model()
            model.fit(X, Y, verbose=0)
            cluster.close()
            with raises(StrategyClosed, "InProcessCluster"):
                strategy.stats()
            with raises(ClusterError, "InProcessCluster"):
                tfps.ParameterServerStrategy(cluster.cluster_resolver)
            assert untouched.stats().updates_applied == 0
        assert untouched.runtime.closed
        cluster.close()


def test_what_nobody_asks_a_server_is_not_traced(cluster: InProcessCluster) -> None:
    """The first call traces the function that steers the server, later calls do not."""
    traced = []

    def trace(number: tf.Tensor) -> list[tf.Tensor]:
        traced.append(number)
        return [number + 1]

    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    channel = strategy.runtime.servers[1].open_channel()
    increase = channel.make_function(trace, arguments=1)
    assert not traced
    assert [int(increase(number)[0]) for number in (1, 2)] == [2, 3]
    assert len(traced) == 1


@pytest.mark.parametrize("counts", [{"workers": 0}, {"ps": 1.5}, {"workers": True}])
def test_counts(counts: dict[str, Any]) -> None:
    name = next(iter(counts))
    with raises(ConfigError, f"{name}: ", received=counts[name], remedy="a whole number from 1"):
        InProcessCluster(**counts)


@pytest.mark.parametrize("make", [InProcessCluster, InProcessCluster.reserve])
def test_too_few_devices(make: Any) -> None:
    tf.constant(0)  # TensorFlow has started
    with raises(
        ConfigError,
        "expected 101",
        remedy="tfps.testing.InProcessCluster.reserve(workers=60, ps=40",
    ):
        make(workers=60, ps=40)


@pytest.mark.rare
def test_data_that_end_within_an_execution_are_no_mistake(make_strategy: Make) -> None:
    """The number of batches of a shard is not known before."""
    with make_strategy().scope():
        model = _model()
        model.compile("sgd", "mse", steps_per_execution=5)

    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
        return batches.shard(context.num_input_pipelines, context.input_pipeline_id)

    shards = tfps.ShardedDataset(make, number=2)  # of 8 batches: one execution, and a part of one
    history = model.fit(shards, validation_data=shards, verbose=0).history
    expected = model.evaluate(X, Y, batch_size=4, verbose=0, return_dict=True)
    assert history["val_loss"] == pytest.approx([expected["loss"]])
    assert model.optimizer.iterations.numpy() == 8
