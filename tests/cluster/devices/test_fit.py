"""`fit`, `evaluate` and `predict` with two devices per worker give the numbers of one machine."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.bridge.functions.traced_graph import iter_operations

pytestmark = pytest.mark.timeout(240)

# The last batch, of 5 examples, makes parts of 3 and 2.
EXAMPLES, BATCH = 69, 8
TOLERANCE = 1e-6


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(EXAMPLES, 6)).astype("float32"), random.integers(0, 3, EXAMPLES)


def build(optimizer: Any = None) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(16, activation="tanh", kernel_regularizer="l2"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        optimizer or keras.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")],
    )
    return model


@pytest.mark.slow
@pytest.mark.parametrize("clipnorm", [0.05, None])
def test_numbers_of_one_machine(
    strategy: tfps.ParameterServerStrategy, clipnorm: float | None
) -> None:
    assert strategy.num_replicas_in_sync == 2
    assert strategy.extended.worker_devices == ("/device:CPU:0", "/device:CPU:1")
    x, y = data()
    weights = np.linspace(0.5, 1.5, EXAMPLES).astype("float32")
    options: dict[str, Any] = {"batch_size": BATCH, "verbose": 0}

    local = build(keras.optimizers.Adam(0.01, global_clipnorm=clipnorm))
    expected = local.fit(x, y, epochs=2, sample_weight=weights, **options)
    with strategy.scope():
        model = build(keras.optimizers.Adam(0.01, global_clipnorm=clipnorm))
    start = [w.copy() for w in model.get_weights()]
    seen = strategy.stats().examples_seen
    found = model.fit(x, y, epochs=2, sample_weight=weights, **options)

    steps = 2 * -(-EXAMPLES // BATCH)
    assert int(model.optimizer.iterations) == steps
    assert strategy.stats().examples_seen - seen == 2 * EXAMPLES
    for name, values in expected.history.items():
        np.testing.assert_allclose(found.history[name], values, rtol=1e-5, err_msg=name)
    for before, one, two in zip(start, local.get_weights(), model.get_weights(), strict=True):
        assert np.abs(one - before).max() > 1e-2
        np.testing.assert_allclose(two, one, atol=TOLERANCE)

    results = model.evaluate(x, y, return_dict=True, **options)
    for name, value in local.evaluate(x, y, return_dict=True, **options).items():
        assert results[name] == pytest.approx(value, rel=1e-5), name
    np.testing.assert_allclose(
        model.predict(x, **options), local.predict(x, **options), atol=TOLERANCE
    )


@pytest.mark.repeats
def test_each_device_computes_its_part(strategy: tfps.ParameterServerStrategy) -> None:
    x, y = data()
    with strategy.scope():
        model = build()
    model.fit(x, y, batch_size=BATCH, verbose=0)
    (compiled,) = model.train_function.compiler.compiled.values()
    (closure,) = compiled.traced.values()
    products = [op for op in iter_operations(closure.graph) if op.type == "MatMul"]
    placed = [op.device.rpartition("/")[2] for op in products]
    # Forward two, backward three: nothing asks for the gradient of the input.
    assert sorted(placed) == ["device:CPU:0"] * 5 + ["device:CPU:1"] * 5


# The last batch above has parts of two sizes.
@pytest.mark.repeats
def test_fewer_examples_than_devices(strategy: tfps.ParameterServerStrategy) -> None:
    x, y = data()
    local = build(keras.optimizers.SGD(0.5))
    with strategy.scope():
        model = build(keras.optimizers.SGD(0.5))
    for one in (local, model):
        one.fit(x[:9], y[:9], batch_size=4, shuffle=False, verbose=0)
        one.train_on_batch(x[:1], y[:1])
    for one, two in zip(local.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(two, one, atol=TOLERANCE)
    options: dict[str, Any] = {"batch_size": 1, "verbose": 0}
    rows = model.predict(x[:17], **options)
    np.testing.assert_allclose(rows, local.predict(x[:17], **options), atol=TOLERANCE)
    assert model.evaluate(x[:3], y[:3], **options) == pytest.approx(
        local.evaluate(x[:3], y[:3], **options), rel=1e-5
    )


@pytest.mark.repeats
def test_metrics_that_are_no_sums(strategy: tfps.ParameterServerStrategy) -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=(64, 4)).astype("float32")
    y = (x[:, :1] > 0.3).astype("float32")

    def build_binary() -> keras.Model:
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
        metrics = [keras.metrics.AUC(name="auc"), keras.metrics.MeanIoU(2, name="iou")]
        model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", metrics=metrics)
        return model

    local = build_binary()
    with strategy.scope():
        model = build_binary()
    expected = local.fit(x, y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
    found = model.fit(x, y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, err_msg=name)


@pytest.mark.repeats
def test_state_and_random_numbers(strategy: tfps.ParameterServerStrategy) -> None:
    class Recorder(keras.layers.Layer):
        """Counts its calls and examples, and keeps the mean of its last batch."""

        def build(self, input_shape: Any) -> None:
            options: dict[str, Any] = {"initializer": "zeros", "trainable": False}
            self.calls = self.add_weight(shape=(), dtype="int64", name="calls", **options)
            self.rows = self.add_weight(
                shape=(), dtype="int64", name="rows", aggregation="sum", **options
            )
            self.mean = self.add_weight(shape=(), name="mean", **options)

        def call(self, inputs: Any) -> Any:
            self.calls.assign_add(1)
            self.rows.assign_add(keras.ops.cast(keras.ops.shape(inputs)[0], "int64"))
            self.mean.assign(keras.ops.mean(inputs))
            return inputs

    x = np.arange(10, dtype="float32").reshape(10, 1)
    with strategy.scope():
        recorder = Recorder()
        model = keras.Sequential([keras.Input((1,)), recorder, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(x, 0 * x, batch_size=4, shuffle=False, verbose=0)
    assert int(recorder.calls.numpy()) == 3
    assert int(recorder.rows.numpy()) == 10
    assert float(recorder.mean.numpy()) == pytest.approx(8.5)  # of the last batch, [8, 9]


@pytest.mark.repeats
def test_each_device_drops_other_units(strategy: tfps.ParameterServerStrategy) -> None:
    class DroppingModel(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
            self.dropout = keras.layers.Dropout(0.5, seed=3)

        def call(self, inputs: Any, training: bool = False) -> Any:
            return self.dropout(inputs * self.scale, training=training)

        def train_step(self, data: Any) -> dict[str, Any]:
            x, _ = keras.utils.unpack_x_y_sample_weight(data)[:2]
            with tf.GradientTape() as tape:
                masked = self(x, training=True)
                loss = keras.ops.sum(masked)
            self.optimizer.apply([tape.gradient(loss, self.scale.value)], [self.scale])
            return {"masked": masked}

    with strategy.scope():
        model = DroppingModel()
        model.compile(keras.optimizers.SGD(0.0))
    rows = tf.data.Dataset.from_tensors((tf.ones([4, 64]), tf.zeros([4])))
    masked = model.fit(rows, verbose=0).history["masked"][0]
    assert np.shape(masked) == (4, 64)
    assert np.array(masked[:2]).tolist() != np.array(masked[2:]).tolist()
    assert set(np.unique(masked)) == {0.0, 2.0}


@pytest.mark.repeats
def test_two_optimizers_and_a_dataset_function(strategy: tfps.ParameterServerStrategy) -> None:
    class Halves(keras.Model):
        """Each half has an optimizer of its own; the second sees the update of the first."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = keras.layers.Dense(8), keras.layers.Dense(1)
            self.other = keras.optimizers.Adam(0.02)

        def build(self, input_shape: Any) -> None:
            self.first.build(input_shape)
            self.second.build((None, 8))
            self.other.build(self.second.trainable_variables)

        def call(self, inputs: Any) -> Any:
            return self.second(self.first(inputs))

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            losses = []
            for layer, optimizer in ((self.first, self.optimizer), (self.second, self.other)):
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(x, y, self(x))
                variables = layer.trainable_variables
                optimizer.apply(tape.gradient(loss, variables), variables)
                losses.append(loss)
            return {"loss": losses[-1] * tf.distribute.get_strategy().num_replicas_in_sync}

    random = np.random.default_rng(4)
    x = random.normal(size=(36, 5)).astype("float32")
    y = random.normal(size=(36, 1)).astype("float32")
    contexts = []

    def dataset_function(context: tf.distribute.InputContext) -> tf.data.Dataset:
        contexts.append(context)
        return tf.data.Dataset.from_tensor_slices((x, y)).batch(6)

    def make() -> keras.Model:
        keras.utils.set_random_seed(7)
        model = Halves()
        model.build((None, 5))
        model.compile(keras.optimizers.SGD(0.05), "mse")
        return model

    local = make()
    local.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(6), verbose=0)
    with strategy.scope():
        model = make()
    model.fit(dataset_function, verbose=0)
    assert {context.num_replicas_in_sync for context in contexts} == {2}
    for one, two in zip(local.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(two, one, atol=TOLERANCE)


@pytest.mark.repeats
def test_an_optimizer_in_a_nested_function_is_refused(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    class Nested(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

        @tf.function
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x))
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    x = np.ones((8, 3), "float32")
    with strategy.scope():
        model = Nested()
        model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="contains a synchronization point"):
        model.fit(x, x[:, :1], batch_size=4, verbose=0)
