"""Models of every kind, with steps of their own, give the numbers of Keras on one machine."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    STEPS,
    Comparison,
    X,
    compiled,
    cross_entropy,
    fit,
    iterations,
)

pytestmark = pytest.mark.timeout(180)


class OwnStep(keras.Model):
    """One layer; subclasses say how it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.head = keras.layers.Dense(3)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.head(inputs)

    def loss_and_gradients(self, data: Any) -> tuple[tf.Tensor, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        return loss, tape.gradient(loss, self.trainable_variables)


class TrackerModel(OwnStep):
    """Reports its trackers under other names, as Keras's example of a VAE does."""

    def __init__(self) -> None:
        super().__init__()
        self.total = keras.metrics.Mean(name="total_loss")
        self.squared = keras.metrics.Mean(name="squared")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.total, self.squared]

    @tf.function  # many users write it
    def train_step(self, data: Any) -> dict[str, Any]:
        loss, gradients = self.loss_and_gradients(data)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.total.update_state(loss)
        self.squared.update_state(loss**2)
        return {
            "loss": self.total.result(),
            "nested": {"root": tf.sqrt(self.squared.result())},
            "of the last batch": loss,
        }


@pytest.mark.repeats
def test_results_of_metrics_under_other_names(comparison: Comparison) -> None:
    def make() -> keras.Model:
        model = TrackerModel()
        model.compile("adam", cross_entropy())
        return model

    model = comparison.run(make)
    assert iterations(model) == 2 * STEPS


class CompiledMetrics(OwnStep):
    """Updates what `compile` made, in the loop that Keras's guide shows; clips by itself."""

    def train_step(self, data: Any) -> dict[str, Any]:
        loss, gradients = self.loss_and_gradients(data)
        gradients, norm = tf.clip_by_global_norm(gradients, 0.5)
        self.optimizer.apply(gradients, self.trainable_variables)
        x, y = data
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, self(x, training=False))
        return {**{metric.name: metric.result() for metric in self.metrics}, "norm": norm}

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        return {"hits": tf.reduce_sum(tf.cast(tf.argmax(self(x), -1) == y, tf.float32))}

    def predict_step(self, data: Any) -> dict[str, Any]:
        x = data[0] if isinstance(data, tuple) else data
        return {"class": tf.argmax(self(x), -1), "logits": self(x)}


@pytest.mark.repeats
def test_own_train_test_and_predict_step(comparison: Comparison) -> None:
    def make() -> keras.Model:
        model = CompiledMetrics()
        model.compile("sgd", cross_entropy(), metrics=["accuracy"])
        return model

    def use(model: keras.Model) -> dict[str, Any]:
        numbers = fit(model, validation_data=(X[:BATCH], LABELS[:BATCH]))
        return {**numbers, "predicted": model.predict(X, batch_size=20, verbose=0)}

    comparison.run(make, use)


class AccumulatingModel(OwnStep):
    """Applies the sum of two batches' gradients in a branch."""

    def build(self, input_shape: Any) -> None:
        self.head.build(input_shape)
        self.count = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)
        self.sums = [
            self.add_weight(shape=v.shape, initializer="zeros", trainable=False)
            for v in self.head.trainable_variables
        ]

    def train_step(self, data: Any) -> dict[str, Any]:
        loss, gradients = self.loss_and_gradients(data)
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign_add(gradient)
        self.count.assign_add(1)
        tf.cond(self.count % 2 == 0, self.update, lambda: 0)
        return {"loss": loss}

    def update(self) -> int:
        self.optimizer.apply([tf.identity(s) for s in self.sums], self.trainable_variables)
        for total in self.sums:
            total.assign(tf.zeros_like(total))
        return 0


@pytest.mark.repeats
def test_optimizer_call_in_a_branch(comparison: Comparison) -> None:
    def make() -> keras.Model:
        model = AccumulatingModel()
        model.compile("sgd", cross_entropy())
        return model

    model = comparison.run(make)
    assert iterations(model) == STEPS


class CountingModel(keras.Model):
    """Adds a loss, counts its calls and keeps a moving average."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.layers.Dense(8)
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)
        self.average = self.add_weight(shape=(8,), initializer="zeros", trainable=False)
        self.noise = keras.random.SeedGenerator(5)

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        outputs = self.inner(inputs)
        outputs += 0.1 * keras.random.normal(tf.shape(outputs), seed=self.noise)
        self.add_loss(0.01 * tf.reduce_mean(outputs**2))
        if training:
            self.calls.assign_add(1)
            self.average.assign(0.9 * self.average + 0.1 * tf.reduce_mean(outputs, 0))
        return outputs


@pytest.mark.repeats
def test_added_loss_and_own_state(comparison: Comparison) -> None:
    def make() -> keras.Model:
        model = CountingModel()
        model.compile("adam", "mse")
        return model

    model = comparison.run(make, lambda m: fit(m, X, X))
    assert int(model.calls.numpy()) == 2 * STEPS


@pytest.mark.repeats
def test_several_inputs_and_outputs(comparison: Comparison) -> None:
    def make() -> keras.Model:
        left, right = keras.Input((8,), name="left"), keras.Input((8,), name="right")
        shared = keras.layers.Dense(6, "tanh")
        both = keras.layers.Concatenate()([shared(left), shared(right)])
        outputs = {
            "class": keras.layers.Dense(3, name="class")(both),
            "sum": keras.layers.Dense(1, name="sum")(both),
        }
        model = keras.Model({"left": left, "right": right}, outputs)
        model.compile(
            "adam",
            {"class": cross_entropy(), "sum": "mse"},
            loss_weights={"class": 0.5, "sum": 2.0},
            metrics={"class": ["accuracy"], "sum": ["mae"]},
            weighted_metrics={"sum": ["mse"]},
        )
        return model

    def use(model: keras.Model) -> dict[str, Any]:
        weights = np.linspace(0, 1, len(X)).astype("float32")
        return fit(
            model,
            {"left": X, "right": X[::-1].copy()},
            {"class": LABELS, "sum": X.sum(1, keepdims=True)},
            sample_weight={"class": np.ones_like(weights), "sum": weights},
        )

    comparison.run(make, use)


@pytest.mark.slow
def test_single_batches_are_one_exchange_each(comparison: Comparison) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        weights = {0: 1.0, 1: 2.0, 2: 0.5}
        trained = [model.train_on_batch(X[:b], LABELS[:b], return_dict=True) for b in (8, 16, 5)]
        weighted = model.train_on_batch(X[:8], LABELS[:8], class_weight=weights)
        tested = model.test_on_batch(X[:9], LABELS[:9], return_dict=True)
        model.reset_metrics()
        return {
            "trained": trained,
            "weighted": weighted,
            "tested": tested,
            "predicted": model.predict_on_batch(X[:5]),
            "alone": model.test_on_batch(X[:4], LABELS[:4]),
        }

    before = comparison.strategy.stats().updates_applied
    comparison.run(compiled, use)
    assert comparison.strategy.stats().updates_applied == before + 4
