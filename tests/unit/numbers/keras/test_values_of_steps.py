"""Values that a step returns, variables that it makes, and predictions in the scope."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    Comparison,
    Numbers,
    X,
    fit,
    lie_on_servers,
    linear,
)
from tests.unit.numbers.conftest import Clusters
from tfps.errors import UnsupportedError

pytestmark = pytest.mark.timeout(180)

STEPS = 8
ADDRESS = re.compile(r" at 0x\w+")


class ReturningModel(keras.Model):
    """A model whose step returns further values beside the loss."""

    further: Callable[[], dict[str, Any]]

    def train_step(self, data: Any) -> dict[str, Any]:
        return {**super().train_step(data), **self.further()}


def returning(further: Callable[[], dict[str, Any]]) -> keras.Model:
    inputs = keras.Input((8,))
    model = ReturningModel(inputs, keras.layers.Dense(3)(inputs))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.further = further
    return model


def values() -> dict[str, Any]:
    return {
        "number": 0.5,
        "count": 3,
        "flag": True,
        "of numpy": np.float32(2),
        "array": np.arange(6).reshape(2, 3),
        "list": [1.0, 2.0],
        "complex": tf.constant([[1 + 2j, 3 - 1j]], tf.complex64),
        "text": "phase 1",
        "nothing": None,
        "in a dict": {"inner": 1.5},
    }


def test_numbers_texts_and_none_in_the_logs(comparison: Comparison) -> None:
    distributed, local = comparison.pair(lambda: returning(values))
    found, expected = (fit(model) for model in (distributed, local))
    assert list(found) == list(expected)
    for name in set(expected) - {"loss"}:
        for value, other in zip(found[name], expected[name], strict=True):
            assert type(value) is type(other), name
            np.testing.assert_array_equal(value, other, strict=isinstance(other, np.ndarray))


class ReturningRows(keras.Model):
    """A model whose steps return tensors of unknown length, and structures."""

    def train_step(self, data: Any) -> dict[str, Any]:
        return {**super().train_step(data), **self.describe(data[0])}

    def test_step(self, data: Any) -> dict[str, Any]:
        return {**super().test_step(data), **self.describe(data[0])}

    def describe(self, x: tf.Tensor) -> dict[str, Any]:
        rows = x[:, :2]
        return {
            "dense": rows,
            "ragged": tf.RaggedTensor.from_tensor(rows),
            "uneven": tf.ragged.constant([[1], [2, 3]]),
            "sparse": tf.sparse.from_dense(tf.nn.relu(rows)),
            "slices": tf.IndexedSlices(rows[:1], tf.constant([1]), tf.constant([3, 2])),
            "text": tf.strings.as_string(rows[:, 0]),
            "list": [1.0, 2.0],
            "tuple": (1.0, 2),
            "nothing": None,
            "nested": {
                "further": {"list in a dict": [tf.reduce_sum(x), 1.0], "nothing in a dict": None},
                "no dict": {},
                "no tuple": (),
            },
            "list in a tuple": ([1.0, 2.0], None),
        }


def returning_rows() -> keras.Model:
    inputs = keras.Input((8,))
    model = ReturningRows(inputs, keras.layers.Dense(3)(inputs))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def logs_of_rows(model: keras.Model) -> list[dict[str, Any]]:
    last = len(X) - BATCH // 2  # the last batch is shorter
    data, options = (X[:last], LABELS[:last]), {"batch_size": BATCH, "verbose": 0}
    seen: list[dict[str, Any]] = []
    watching = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    history = model.fit(*data, epochs=2, shuffle=False, callbacks=[watching], **options).history
    seen.append({name: values[-1] for name, values in history.items()})
    seen.append(model.evaluate(*data, return_dict=True, **options))
    for count in (BATCH, 3):  # of another length, too
        seen.append(model.train_on_batch(X[:count], LABELS[:count], return_dict=True))
        seen.append(model.test_on_batch(X[:count], LABELS[:count], return_dict=True))
    return [{name: logs[name] for name in logs if name != "loss"} for logs in seen]


@pytest.mark.rare
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.repeats)])
def test_tensors_of_unknown_shape_and_structures_in_the_logs(
    cluster: Clusters, workers: int
) -> None:
    strategy = tfps.ParameterServerStrategy(cluster(workers=workers).cluster_resolver)
    expected = logs_of_rows(returning_rows())
    with strategy.scope():
        model = returning_rows()
    found = logs_of_rows(model)
    assert len(expected[0]) == 13
    # Types, dtypes and values; older versions of TensorFlow show slices by their address.
    assert ADDRESS.sub("", repr(found)) == ADDRESS.sub("", repr(expected))


class LateStep(keras.Model):
    """A model whose step on the last batch but one ends late; it returns the first feature."""

    def train_step(self, data: Any) -> dict[str, Any]:
        first = data[0][0, 0]
        end_s = tf.timestamp() + tf.where(first == STEPS - 2, tf.constant(0.5, tf.float64), 0)
        tf.while_loop(lambda _: tf.timestamp() < end_s, lambda i: [i + 1], [0])
        return {
            **super().train_step(data),
            "number": first,
            "text": tf.strings.as_string(data[0][:, 0]),
        }


def test_all_values_in_the_logs_are_of_the_last_batch(cluster: Clusters) -> None:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2).cluster_resolver)
    with strategy.scope():
        inputs = keras.Input((1,))
        model = LateStep(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", "mse")
    x = np.arange(STEPS, dtype="float32")[:, None]
    logs = model.fit(x, x, batch_size=1, shuffle=False, verbose=0).history
    assert logs["number"] == [STEPS - 1]
    assert logs["text"][0].tolist() == [f"{STEPS - 1:f}".encode()]


UNEQUAL: dict[str, tuple[Any, str]] = {
    "shapes": ([tf.zeros(2), tf.zeros(3)], "shape=(3,)"),
    "types": ([tf.zeros(2), tf.zeros(2, tf.int32)], "tf.int32"),
    "none": ([None, 1.0], "[None, TensorSpec("),
}


@pytest.mark.quick("shapes")
@pytest.mark.parametrize("name", UNEQUAL)
def test_a_list_that_is_no_tensor_is_refused(
    strategy: tfps.ParameterServerStrategy, name: str
) -> None:
    value, received = UNEQUAL[name]

    class Unequal(keras.Model):
        def train_step(self, data: Any) -> dict[str, Any]:
            return {**super().train_step(data), "rows": value}

        def test_step(self, data: Any) -> dict[str, Any]:
            return {**super().test_step(data), "rows": value}

    def make() -> keras.Model:
        inputs = keras.Input((8,))
        model = Unequal(inputs, keras.layers.Dense(3)(inputs))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    with pytest.raises((TypeError, ValueError), match="TypeSpec|not convertible"):
        fit(make())
    with strategy.scope():
        model = make()
    for step in ("train_step", "test_step"):
        run = model.fit if step == "train_step" else model.evaluate
        with raises(
            UnsupportedError,
            f"under 'rows' in the result of {step}",
            received=received,
            remedy="Return a tuple",
        ):
            run(X, LABELS, batch_size=BATCH, verbose=0)
        assert int(model.optimizer.iterations) == 0  # refused before the first step
    # A single batch makes no tensor of a list, here and in Keras.
    once = model.train_on_batch(X[:BATCH], LABELS[:BATCH], return_dict=True)
    assert type(once["rows"]) is list


def test_a_single_batch_has_all_three_parts(strategy: tfps.ParameterServerStrategy) -> None:
    """Keras passes them, where `fit` leaves out what is None."""

    class Unpacking(keras.Model):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y, weights = data
            loss = self.compute_loss(x, y, self(x), weights)
            return {"loss": loss, "weighted": weights is not None}

        test_step = train_step

    def run() -> list[Any]:
        inputs = keras.Input((8,))
        model = Unpacking(inputs, keras.layers.Dense(3, kernel_initializer="ones")(inputs))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        batch = X[:BATCH], LABELS[:BATCH]
        weights = np.ones(BATCH, "float32")
        methods = (model.train_on_batch, model.test_on_batch)
        return [m(*batch, w, return_dict=True) for m in methods for w in (None, weights)]

    with strategy.scope():
        found = run()
    assert found == run()


class CountingModel(keras.Model):
    """A model whose first step makes a variable."""

    steps: tf.Variable | None = None
    mean: tf.Variable | None = None

    def train_step(self, data: Any) -> dict[str, Any]:
        if self.steps is None:
            self.steps = tf.Variable(0.0, trainable=False)
            self.mean = tf.Variable(2.0 * tf.ones([8]), trainable=False)  # a traced tensor
        assert self.mean is not None
        self.steps.assign_add(1.0)
        self.mean.assign(0.5 * self.mean + 0.5 * tf.reduce_mean(data[0], 0))
        mean = tf.reduce_sum(self.mean)
        return {**super().train_step(data), "steps": self.steps, "mean": mean}


@pytest.mark.rare
def test_a_variable_that_the_first_step_makes(comparison: Comparison) -> None:
    def make() -> keras.Model:
        inputs = keras.Input((8,))
        model = CountingModel(inputs, keras.layers.Dense(3)(inputs))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    def use(model: keras.Model) -> Numbers:
        history = fit(model)
        return {"steps": history["steps"], "mean": history["mean"]}

    comparison.run(make, use)


def test_a_variable_with_a_value_of_the_batch_is_refused(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    class FirstBatch(keras.Model):
        first: tf.Variable | None = None

        def train_step(self, data: Any) -> dict[str, Any]:
            if self.first is None:
                self.first = tf.Variable(tf.reduce_mean(data[0], 0), trainable=False)
            return dict(super().train_step(data))

    with strategy.scope():
        inputs = keras.Input((8,))
        model = FirstBatch(inputs, keras.layers.Dense(3)(inputs))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    remedy = "assign the value in the step"
    with raises(UnsupportedError, "tf.Variable in a step", received="Mean", remedy=remedy) as info:
        fit(model)
    assert "train_step" in [entry.name for entry in info.traceback]


@pytest.mark.parametrize("is_built", [True, False])
def test_prediction_in_the_scope(strategy: tfps.ParameterServerStrategy, is_built: bool) -> None:
    """It builds a model that has no input yet, too."""
    with strategy.scope():
        model = linear() if is_built else keras.Sequential([keras.layers.Dense(3)])
        inside = [model.predict(X[:BATCH], verbose=0), model.predict_on_batch(X[:BATCH])]
    for found in inside:
        np.testing.assert_allclose(found, model.predict(X[:BATCH], verbose=0), atol=1e-6)
    assert lie_on_servers(strategy, model.trainable_variables)


def test_prediction_of_numbers_and_texts(strategy: tfps.ParameterServerStrategy) -> None:
    class Labels(keras.Model):
        def predict_step(self, data: Any) -> Any:
            return {"number": 0.5, "text": "a", "flag": True}

    def predict() -> Any:
        inputs = keras.Input((8,))
        return Labels(inputs, keras.layers.Dense(3)(inputs)).predict(X, batch_size=BATCH, verbose=0)

    with strategy.scope():
        found = predict()
    for name, expected in predict().items():
        assert found[name].dtype == expected.dtype
        assert found[name].tolist() == expected.tolist()


@pytest.mark.repeats
def test_prediction_of_a_dataset_function(strategy: tfps.ParameterServerStrategy) -> None:
    def rows(context: tf.distribute.InputContext) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(BATCH)
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id)

    with strategy.scope():
        model = linear()
    expected = model(X)
    for x in (rows, tfps.ShardedDataset(rows, number=2)):
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-6)
