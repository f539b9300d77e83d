"""Metrics are those of plain Keras, under two workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tfps.errors import UnsupportedError
from tfps.testing import OneProcess

EXAMPLES, BATCH = 100, 8
_random = np.random.default_rng(3)
X = _random.normal(size=(EXAMPLES, 4)).astype("float32")
Y = (X[:, :1] + 0.5 * _random.normal(size=(EXAMPLES, 1)) > 0).astype("float32")

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., OneProcess]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=1).cluster_resolver)
    yield strategy
    strategy.close()


class Largest(keras.metrics.Metric):
    """The largest prediction; its state is no sum."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.value = self.add_variable((), initializer="zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

    def result(self) -> Any:
        return self.value


class RegisteredLargest(Largest):
    """Registered below."""


class MergingLargest(Largest):
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


def test_class_that_does_not_add_up_is_refused(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = _model([Largest()])
    with pytest.raises(UnsupportedError, match=r"'largest' \(Largest\).*register_merge\(Largest"):
        model.fit(X, Y, batch_size=BATCH, verbose=0)
    with pytest.raises(UnsupportedError, match="register_merge"):
        model.evaluate(X, Y, batch_size=BATCH, verbose=0)
    with strategy.scope():
        model = _model([])
    model.fit(X, Y, batch_size=BATCH, verbose=0)  # nothing is left behind


@pytest.mark.slow
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
