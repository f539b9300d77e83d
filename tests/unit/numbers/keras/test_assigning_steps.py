"""Weights that a layer, a `test_step` or a `predict_step` assigns have the values of Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.comparison import BATCH, LABELS, Comparison, Numbers, X, cross_entropy, fit
from tests.unit.numbers.conftest import Clusters
from tfps.errors import UnsupportedError

pytestmark = pytest.mark.timeout(180)

MANY = np.concatenate([X, X])  # batches enough for the workers to predict


class Counter(keras.layers.Layer):
    """Counts its calls, and keeps an average and bounds of its inputs, which start at infinity."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(name="calls", initializer="zeros", trainable=False)
        self.average = self.add_weight(
            name="average", shape=shape[1:], initializer="zeros", trainable=False
        )
        infinite = keras.initializers.Constant(np.inf)
        self.bounds = self.add_weight(
            name="bounds", shape=(2,), initializer=infinite, trainable=False
        )

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        self.average.assign(0.9 * self.average + 0.1 * tf.reduce_mean(x, axis=0))
        smallest = tf.minimum(self.bounds[0], tf.reduce_min(x))
        self.bounds.assign(tf.stack([smallest, self.bounds[1]]))
        return x + self.average


def counting() -> keras.Model:
    model = keras.Sequential([keras.Input((8,)), Counter(), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), cross_entropy(), metrics=["accuracy"])
    return model


def every_way(model: keras.Model) -> Numbers:
    """Return what each way to run a model logs, and the weights after it."""
    found: dict[str, Any] = {}
    for name, run in {
        "fit": lambda: fit(model, validation_data=(X, LABELS))["val_loss"],
        "evaluate": lambda: model.evaluate(X, LABELS, batch_size=BATCH, verbose=0),
        "test_on_batch": lambda: model.test_on_batch(X, LABELS),
        "predict on workers": lambda: model.predict(MANY, batch_size=BATCH, verbose=0),
        "predict on the chief": lambda: model.predict(X[:BATCH], batch_size=BATCH, verbose=0),
        "predict_on_batch": lambda: model.predict_on_batch(X),
        "call": lambda: model(X),
    }.items():
        found[name] = run()
        found[f"weights after {name}"] = np.concatenate([w.ravel() for w in model.get_weights()])
    return found


@pytest.mark.slow
def test_a_layer_that_assigns_in_every_call(comparison: Comparison) -> None:
    comparison.run(counting, every_way)


class BestAccuracyModel(keras.Model):
    """Keeps the best accuracy of an evaluation as a weight, and adapts to the examples it tests."""

    def __init__(self) -> None:
        super().__init__()
        self.head = keras.layers.Dense(3)
        self.seen = keras.metrics.Sum(name="seen")
        self.best = self.add_weight(name="best", initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        return self.head(x)

    def test_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.seen.update_state(tf.reduce_sum(x))
        self.best.assign(tf.maximum(self.best, self.seen.result()))
        return {"loss": loss, "seen": self.seen.result()}


def evaluated() -> keras.Model:
    model = BestAccuracyModel()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), cross_entropy())
    return model


@pytest.mark.rare
def test_a_test_step_that_trains_and_assigns_by_a_metric(comparison: Comparison) -> None:
    comparison.run(
        evaluated,
        lambda model: {
            "fit": fit(model, validation_data=(X, LABELS))["val_loss"],
            "evaluate": model.evaluate(X, LABELS, batch_size=BATCH, verbose=0),
        },
    )


MODES = [
    tfps.Asynchronous(),
    tfps.BoundedStaleness(2),
    tfps.LocalSteps(4),
    tfps.Synchronous(),
    tfps.Synchronous(backup_workers=1),
]


@pytest.mark.repeats
@pytest.mark.quick("Asynchronous(*")
@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_two_workers_count_every_call(cluster: Clusters, mode: Any) -> None:
    resolver = cluster(workers=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=mode)
    with strategy.scope():
        model = counting()
    counter = model.layers[0]
    calls = counter.calls
    model.evaluate(X, LABELS, batch_size=BATCH, verbose=0)
    counted = [calls.numpy()]
    model.predict(MANY, batch_size=BATCH, verbose=0)
    counted.append(calls.numpy())
    applied = strategy.stats().versions  # with them a checkpoint of before is an old one
    model.fit(X, LABELS, batch_size=BATCH, epochs=2, verbose=0)
    bounds = counter.bounds.numpy()
    strategy.close()
    assert counted == [4, 12]
    assert applied == (12,)
    assert np.isfinite(bounds[0])
    assert bounds[1] == np.inf


def test_two_workers_refuse_a_test_step_that_assigns_by_a_metric(cluster: Clusters) -> None:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2).cluster_resolver)
    with strategy.scope():
        model = evaluated()
    with raises(UnsupportedError, "best", received="a step", remedy="add_weight"):
        model.evaluate(X, LABELS, batch_size=BATCH, verbose=0)
    strategy.close()


@pytest.mark.rare
def test_functions_that_run_during_a_prediction_keep_their_counts(cluster: Clusters) -> None:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2).cluster_resolver)
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        counter = Counter()
        model = keras.Sequential([keras.Input((8,)), counter, keras.layers.Dense(3)])

    @tf.function
    def call() -> tf.Tensor:
        return model(X[:BATCH])

    functions = 60
    for _ in range(functions):
        coordinator.schedule(call)
    model.predict(X[:BATCH], verbose=0)
    coordinator.join()
    counted, bounds = counter.calls.numpy(), counter.bounds.numpy()
    strategy.close()
    assert counted == functions + 1
    assert np.isfinite(bounds[0])
    assert bounds[1] == np.inf


class PredictionCounter(keras.Model):
    """Counts the rows that it predicts in a metric; trains where it is told to."""

    trains = False

    def __init__(self) -> None:
        super().__init__()
        self.head = keras.layers.Dense(3)
        self.rows = keras.metrics.Sum(name="rows")

    def call(self, x: Any) -> Any:
        return self.head(x)

    def predict_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            y = self(data)
            loss = tf.reduce_mean(y**2)
        self.rows.update_state(tf.reduce_sum(tf.ones_like(y[:, 0])))
        if self.trains:
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
        return y


def predicting() -> keras.Model:
    model = PredictionCounter()
    model.compile("sgd", cross_entropy())
    model(X)
    return model


@pytest.mark.repeats
def test_metrics_of_a_prediction(comparison: Comparison) -> None:
    def use(model: keras.Model) -> Numbers:
        rows = []
        for x in (X[:BATCH], MANY):  # on the chief, on the workers
            model.predict(x, batch_size=BATCH, verbose=0)
            rows.append(model.rows.result())
        return {"rows": rows}

    comparison.run(predicting, use)


@pytest.mark.rare
def test_a_predict_step_that_trains_is_refused(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = predicting()
    model.trains = True
    for x in (X[:BATCH], MANY):
        with raises(UnsupportedError, "", received="a predict_step", remedy="evaluate()"):
            model.predict(x, batch_size=BATCH, verbose=0)
    model.trains = False
    model.predict(MANY, batch_size=BATCH, verbose=0)
