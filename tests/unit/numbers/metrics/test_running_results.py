"""A step that reads the running result of a metric: Keras's numbers, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.metrics.test_exact import Batches, Hidden, Largest, Last
from tfps.errors import UnsupportedError
from tfps.testing import InProcessCluster

EXAMPLES, BATCH = 32, 4
X = np.random.RandomState(0).rand(EXAMPLES, 4).astype("float32")
Y = X.sum(1, keepdims=True)

Step = Callable[["Phased", Any], dict[str, Any]]


class Phased(keras.Model):
    """A model whose step is that of a test; it has metrics, and a count that is none."""

    def __init__(self, step: Step, newest: keras.metrics.Metric) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")
        self.count = keras.metrics.Sum(name="count")
        self.newest = newest
        self.mine = self.add_weight(shape=(), initializer="zeros", trainable=False, name="mine")
        self._step = step

    @property
    def metrics(self) -> list[Any]:
        return [self.count, self.newest]

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        return self._step(self, data)

    def train(self, data: Any, weight: Any) -> Any:
        """Apply the gradient of a weighted loss."""
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = weight * tf.reduce_mean((self(x) - y) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss


def phased_in(model: Phased, data: Any) -> dict[str, Any]:
    """The loss grows with the batches of the epoch."""
    before = model.count.result() + 0.0
    model.count.update_state(1.0)
    weight = tf.minimum(model.count.result() / 8.0, 1.0)
    loss = model.train(data, weight)
    model.newest.update_state(data[1], data[1])
    results = {"count": model.count.result(), "newest": model.newest.result()}
    return {**results, "weight": weight, "before": before, "scaled": loss + model.count.result()}


def every_second(model: Phased, data: Any) -> dict[str, Any]:
    """Every second batch is trained on."""
    model.count.update_state(1.0)
    tf.cond(
        tf.math.floormod(model.count.result(), 2.0) == 0.0,
        lambda: model.train(data, 1.0),
        lambda: 0.0,
    )
    return {"count": model.count.result()}


def remembers(model: Phased, data: Any) -> dict[str, Any]:
    """A weight becomes the result of a metric."""
    model.count.update_state(1.0)
    model.mine.assign(model.count.result())
    return {"count": model.count.result(), "loss": model.train(data, 1.0)}


def remembers_below(model: Phased, data: Any) -> dict[str, Any]:
    """A weight becomes the result, in a function of its own."""
    model.count.update_state(1.0)

    @tf.function
    def remember(value: Any) -> None:
        model.mine.assign(value)

    remember(model.count.result())
    return {"count": model.count.result(), "loss": model.train(data, 1.0)}


def only_results(model: Phased, data: Any) -> dict[str, Any]:
    """Every second batch by a count that is a weight; of metrics there are only results."""
    model.count.update_state(1.0)
    model.mine.assign_add(1.0)
    tf.cond(
        tf.math.floormod(model.mine.value, 2.0) >= 0.0, lambda: model.train(data, 1.0), lambda: 0.0
    )
    tf.cond(model.count.result() > 1.0, lambda: tf.print("counted"), tf.no_op)
    return {"half": model.count.result() / 2.0}


STEPS = [phased_in, every_second, remembers, remembers_below]


def _model(step: Step, newest: type[keras.metrics.Metric] = Last) -> Phased:
    keras.utils.set_random_seed(1)
    model = Phased(step, newest(name="newest"))
    model.build((None, 4))
    model.compile("sgd", "mse")
    return model


MODES: dict[str, tuple[Any, dict[str, Any]]] = {
    "asynchronous": (tfps.Asynchronous(), {}),
    "synchronous": (tfps.Synchronous(), {}),
    "bounded": (tfps.BoundedStaleness(1), {}),
    "local": (tfps.LocalSteps(3), {}),
}


@pytest.mark.rare
@pytest.mark.parametrize(
    "mode", ["asynchronous", *(pytest.param(m, marks=pytest.mark.repeats) for m in list(MODES)[1:])]
)
@pytest.mark.parametrize(
    "step", [phased_in, *(pytest.param(s, marks=pytest.mark.repeats) for s in STEPS[1:])]
)
def test_one_worker_has_the_numbers_of_keras(
    cluster: Callable[..., InProcessCluster], step: Step, mode: str
) -> None:
    consistency, _ = MODES[mode]
    resolver = cluster(workers=1, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=consistency)
    plain = _model(step)
    with strategy.scope():
        model = _model(step)
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    expected = plain.fit(X, Y, epochs=2, **options).history
    received = model.fit(X, Y, epochs=2, **options).history
    assert set(received) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(received[name], values, rtol=1e-5, err_msg=name)
    for weight, right in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weight, right, rtol=1e-5)
    for batch in (X[:4], X[4:10]):  # the second is traced anew, and goes on with the state
        logs = [m.train_on_batch(batch, batch[:, :1], return_dict=True) for m in (model, plain)]
        for name, value in logs[1].items():
            np.testing.assert_allclose(logs[0][name], value, rtol=1e-5, err_msg=name)
    strategy.close()


@pytest.mark.repeats
@pytest.mark.parametrize("step", STEPS)
def test_several_workers_refuse_to_train_by_a_metric(
    cluster: Callable[..., InProcessCluster], step: Step
) -> None:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=1).cluster_resolver)
    with strategy.scope():
        model = _model(step, newest=Largest)
    with raises(
        UnsupportedError,
        "received a step",
        received="the state of a metric",
        remedy="add_weight(trainable=False)",
    ) as caught:
        model.fit(X, Y, batch_size=BATCH, verbose=0)
    assert str(caught.value).split(":")[0].split("/")[-1] in ("mine", "kernel", "bias")
    assert strategy.stats().updates_applied == 0
    strategy.close()


@pytest.mark.repeats
def test_several_workers_compute_results(cluster: Callable[..., InProcessCluster]) -> None:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=1).cluster_resolver)
    with strategy.scope():
        model = _model(only_results)
    history = model.fit(X, Y, batch_size=BATCH, verbose=0).history
    assert history["half"] == [EXAMPLES / BATCH / 2.0]
    # A batch by itself has no others beside it, whichever worker computes it.
    with strategy.scope():
        model = _model(phased_in)
    for number in (1, 2, 3):
        logs = model.train_on_batch(X[:4], Y[:4] * number, return_dict=True)
        assert (logs["count"], logs["weight"]) == (1.0, 1.0 / 8.0)
        assert logs["newest"] == pytest.approx((Y[:4] * number).max())
    strategy.close()


@pytest.mark.repeats
@pytest.mark.parametrize("kind", [Batches, Hidden, Last], ids=lambda kind: kind.__name__)
def test_metrics_of_any_kind_in_evaluation_with_one_worker(
    strategy: tfps.ParameterServerStrategy, kind: Any
) -> None:
    logs = []
    for scope in (None, strategy.scope()):
        keras.utils.set_random_seed(5)
        with scope if scope is not None else tf.name_scope("plain"):
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse", metrics=[kind(name="it")])
        logs.append(model.evaluate(X, Y, batch_size=BATCH, verbose=0, return_dict=True))
    plain, received = logs
    assert set(plain) == set(received)
    for name, value in plain.items():
        np.testing.assert_allclose(received[name], value, rtol=1e-5, err_msg=name)
