"""Metrics are those of plain Keras, under two workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tfps.errors import UnsupportedError
from tfps.testing import InProcessCluster

EXAMPLES, BATCH = 100, 8
_random = np.random.default_rng(3)
X = _random.normal(size=(EXAMPLES, 4)).astype("float32")
Y = (X[:, :1] + 0.5 * _random.normal(size=(EXAMPLES, 1)) > 0).astype("float32")

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., InProcessCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=1).cluster_resolver)
    yield strategy
    strategy.close()


class Largest(keras.metrics.Metric):
    """The largest prediction."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.value = self.add_variable((), initializer="zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

    def result(self) -> Any:
        return self.value


class Coverage(keras.metrics.Metric):
    """A metric of the targets seen, and of whether all predictions were positive."""

    def __init__(self, name: str = "coverage") -> None:
        super().__init__(name=name)
        self.seen = self.add_variable((2,), initializer="zeros", dtype="bool", name="seen")
        self.positive = self.add_variable((), initializer="ones", dtype="bool", name="positive")
        self.least = self.add_variable((), initializer="ones", name="least")

    def reset_state(self) -> None:
        self.seen.assign([False, False])
        self.positive.assign(True)
        self.least.assign(1.0)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        now = keras.ops.any(keras.ops.equal(y_true, [[0.0, 1.0]]), axis=0)
        self.seen.assign(keras.ops.logical_or(self.seen, now))
        positive = keras.ops.all(y_pred > 0.4)
        self.positive.assign(keras.ops.logical_and(self.positive, positive))
        self.least.assign(keras.ops.minimum(self.least, keras.ops.min(y_pred)))

    def result(self) -> Any:
        states = {"seen": self.seen, "positive": self.positive, "least": self.least}
        return {name: keras.ops.mean(keras.ops.cast(v, "float32")) for name, v in states.items()}


class Hidden(Largest):
    """A maximum that is written so that the graph does not show it."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        now = keras.ops.max(y_pred)
        self.value.assign(keras.ops.where(now > self.value, now, self.value))


class RegisteredLargest(Hidden):
    """Registered below."""


class MergingLargest(Hidden):
    """Says itself how two become one, as metrics of tf_keras do."""

    def merge_state(self, metrics: Iterable[Largest]) -> None:
        for other in metrics:
            self.value.assign(keras.ops.maximum(self.value, other.value))


class Batches(keras.metrics.Metric):
    """A user's sums: of predictions, and of updates."""

    def __init__(self, name: str = "batches") -> None:
        super().__init__(name=name)
        self.total = self.add_variable((), initializer="zeros", name="total")
        self.updates = self.add_variable((), initializer="zeros", dtype="int32", name="updates")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(keras.ops.sum(y_pred))
        self.updates.assign_add(1)

    def result(self) -> Any:
        return {"total": self.total, "updates": self.updates}


tfps.metrics.register_merge(
    RegisteredLargest, lambda left, right: [keras.ops.maximum(left[0], right[0])]
)


def _metrics() -> list[keras.metrics.Metric]:
    return [
        keras.metrics.AUC(name="auc"),
        keras.metrics.BinaryIoU([0, 1], name="iou"),
        keras.metrics.F1Score(threshold=0.5, name="f1"),
        keras.metrics.R2Score(name="r2"),
        keras.metrics.PrecisionAtRecall(0.5, name="precision"),
        RegisteredLargest("registered"),
        MergingLargest("merging"),
        Largest(),
        Coverage(),
        Batches(),
    ]


def _model(metrics: list[Any]) -> keras.Model:
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, "sigmoid", kernel_initializer="ones")]
    )
    model.compile(keras.optimizers.SGD(0.0), "binary_crossentropy", metrics=metrics)
    return model


def test_metrics_of_all_kinds_are_exact(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = _model(_metrics())
    plain = _model(_metrics())
    history = model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0).history
    expected = plain.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0).history
    _assert_equal(history, expected)
    evaluated = model.evaluate(X[:37], Y[:37], batch_size=5, verbose=0, return_dict=True)
    _assert_equal(evaluated, plain.evaluate(X[:37], Y[:37], batch_size=5, verbose=0, return_dict=1))


def _assert_equal(received: dict[str, Any], expected: dict[str, Any]) -> None:
    assert set(received) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(received[name], values, rtol=1e-4, err_msg=name)


class Last(Largest):
    """The newest batch's largest prediction."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(keras.ops.max(y_pred))


@pytest.mark.rare
@pytest.mark.parametrize(
    "kind", [Hidden, pytest.param(Last, marks=pytest.mark.repeats)], ids=lambda kind: kind.__name__
)
def test_what_goes_by_the_order_of_batches_is_refused(
    strategy: tfps.ParameterServerStrategy, kind: type[Largest]
) -> None:
    """Before the first step, and also where the first batches would add up."""
    with strategy.scope():
        model = _model([kind()])
    kernel, updates = model.get_weights()[0], strategy.stats().updates_applied
    nothing = np.zeros_like(X)
    for run in (model.fit, model.evaluate):
        with raises(
            UnsupportedError,
            f"'largest' ({kind.__name__})",
            received="largest/value",
            remedy=f"register_merge({kind.__name__}",
        ):
            run(nothing, Y, batch_size=BATCH, verbose=0)
    assert (model.get_weights()[0] == kernel).all()
    assert strategy.stats().updates_applied == updates
    logs = model.train_on_batch(X[:BATCH], Y[:BATCH], return_dict=True)  # in no order with others
    assert logs["largest"] == pytest.approx(float(np.max(model(X[:BATCH]))))
    with strategy.scope():
        model = _model([])
    model.fit(X, Y, batch_size=BATCH, verbose=0)  # nothing is left behind


@pytest.mark.repeats
def test_a_maximum_begins_anew_after_a_reset(strategy: tfps.ParameterServerStrategy) -> None:
    """Also where the step was traced while the metric had counted something."""
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")]
        )
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[Largest(), RegisteredLargest("r")])
    for rows, value in [(2, 10.0), (3, 20.0)]:
        batch = np.full((rows, 1), value)
        model.train_on_batch(batch, batch)  # each is traced by itself
    model.reset_metrics()
    batch = np.full((3, 1), 3.0)
    logs = model.train_on_batch(batch, batch, return_dict=True)
    assert (logs["largest"], logs["r"]) == (3.0, 3.0)


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("kind", "is_refused"), [(Batches, False), (Last, True)], ids=["a sum", "the last value"]
)
def test_functions_of_several_workers_count_sums(
    strategy: tfps.ParameterServerStrategy, kind: Any, is_refused: bool
) -> None:
    with strategy.scope():
        metric = kind()

    @tf.function
    def count() -> None:
        metric.update_state(tf.ones([2]), tf.ones([2]))

    def run() -> None:
        for _ in range(6):
            strategy.coordinator.schedule(count)
        strategy.coordinator.join()

    if is_refused:
        with raises(UnsupportedError, "largest/value", received="scheduled function"):
            run()
    else:
        run()
        assert {name: float(value) for name, value in metric.result().items()} == {
            "total": 12.0,
            "updates": 6.0,
        }


@pytest.mark.repeats
def test_metric_of_a_user_defined_step(strategy: tfps.ParameterServerStrategy) -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.largest = RegisteredLargest("mine")

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

        def test_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            self.largest.update_state(y, 0.0 * self(x) + y + 1.0)
            return {"mine": self.largest.result()}  # the variable itself

    with strategy.scope():
        model = Own()
        model.build((None, 4))
        model.compile("sgd", "mse")
    target = np.arange(EXAMPLES, dtype="float32").reshape(-1, 1)
    for _ in range(3):
        evaluated = model.evaluate(X, target, batch_size=BATCH, verbose=0, return_dict=True)
        assert evaluated == {"mine": float(EXAMPLES)}
