"""Mistakes in models, losses, metrics, optimizers or labels, in `fit` and similar methods."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.errors.reading import MISTAKE, reading
from tfps.launch import LocalCluster

X = np.linspace(0, 1, 256, dtype=np.float32).reshape(64, 4)
Y = np.ones([64, 3], np.float32)
NOT_A_NUMBER = np.where(np.arange(256).reshape(64, 4) == 161, np.nan, X).astype(np.float32)

pytestmark = pytest.mark.timeout(180)


def _model(strategy: tfps.ParameterServerStrategy, *layers: Any, **compiled: Any) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])
        model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    return model


class OnlyNumbers(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return tf.debugging.check_numerics(x, "not a number")  # the mistake


class OnlySmall(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        tf.debugging.assert_less(x, 0.5, message="too large")  # the mistake
        return x


class CallsPython(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        doubled = tf.numpy_function(lambda v: v * 2, [x], tf.float32)  # the mistake
        return tf.ensure_shape(doubled, x.shape)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class CallsPythonInside(CallsPython):
    def call(self, x: Any) -> Any:
        @tf.function
        def inner(x: Any) -> Any:
            return tf.cond(tf.reduce_sum(x) > 0, lambda: CallsPython.call(self, x), lambda: x)

        return inner(x)


class NotBuilt(keras.Model):
    """A model that raises in its `call`, before it has a variable."""

    def __init__(self, kind: type[Exception] | None) -> None:
        super().__init__(name="not_built")
        self.kind = kind
        self.dense = keras.layers.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        if self.kind is not None:
            raise self.kind("wrong")  # the mistake
        return self.dense(x @ keras.ops.ones([7, 3]))  # the mistake


class Raises(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        raise KeyError("wrong key")  # the mistake


class RaisingMetric(keras.metrics.Metric):
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        raise KeyError("wrong key")  # the mistake

    def result(self) -> Any:
        return 0.0


class RaisingOptimizer(keras.optimizers.SGD):
    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        raise KeyError("wrong key")  # the mistake


class CheckingOptimizer(keras.optimizers.SGD):
    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        gradient = tf.debugging.check_numerics(gradient, "not a number")  # the mistake
        super().update_step(gradient, variable, learning_rate)


def _raising_loss(y_true: Any, y_pred: Any) -> Any:
    raise KeyError("wrong key")  # the mistake


USES: dict[str, Callable[[keras.Model, Any], Any]] = {
    "fit": lambda model, x: model.fit(x, Y, batch_size=8, verbose=0),
    "evaluate": lambda model, x: model.evaluate(x, Y, batch_size=8, verbose=0),
    "predict": lambda model, x: model.predict(x, batch_size=2, verbose=0),
    "train_on_batch": lambda model, x: model.train_on_batch(x, Y),
    "test_on_batch": lambda model, x: model.test_on_batch(x, Y),
}


@pytest.mark.quick("fit")
@pytest.mark.parametrize("use", USES)
def test_failing_operation_names_the_users_line(
    use: str, strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    model = _model(strategy, OnlyNumbers(name="only"))
    with reading(tf.errors.InvalidArgumentError, caplog) as read:
        USES[use](model, NOT_A_NUMBER)
    assert str(read.error).startswith("not a number : Tensor had NaN values\n\nRaised on worker ")
    assert "by " in str(read.error)
    assert "only_1/CheckNumerics (CheckNumerics), made at" in str(read.error)
    assert "in call" in str(read.error)


@pytest.mark.repeats
def test_assertion_in_a_branch(
    strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    model = _model(strategy, OnlySmall())
    with reading(tf.errors.InvalidArgumentError, caplog) as read:
        USES["fit"](model, X)
    assert "too large" in str(read.error)


@pytest.mark.repeats
@pytest.mark.parametrize(
    "made",
    [
        lambda strategy: _model(strategy, loss=_raising_loss),
        lambda strategy: _model(strategy, metrics=[RaisingMetric()]),
        lambda strategy: _model(strategy, optimizer=RaisingOptimizer()),
    ],
    ids=["loss", "metric", "optimizer"],
)
def test_exception_while_tracing_keeps_its_type(
    made: Any, strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    model = made(strategy)
    with reading(KeyError, caplog) as read:
        USES["fit"](model, X)
    assert type(read.error) is KeyError


@pytest.mark.repeats
def test_exception_in_train_step_keeps_its_type(
    strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    with strategy.scope():
        model = Raises([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
    for use in ("fit", "train_on_batch"):
        with reading(KeyError, caplog) as read:
            USES[use](model, X)
        assert type(read.error) is KeyError


@pytest.mark.repeats
@pytest.mark.parametrize("transport", ["direct", "grpc"])
def test_error_of_an_optimizer_on_a_server_is_not_retried(
    transport: str, cluster: Callable[..., LocalCluster], caplog: pytest.LogCaptureFixture
) -> None:
    resolver = cluster(workers=2, ps=1).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, transport=transport)
    model = _model(strategy, optimizer=CheckingOptimizer())
    with reading(tf.errors.InvalidArgumentError, caplog) as read:
        USES["fit"](model, NOT_A_NUMBER)
    assert "not a number : Tensor had NaN values" in str(read.error)
    assert "in update_step" in str(read.error)
    assert not [r for r in caplog.records if "reconnects" in r.getMessage()]
    strategy.close()


@pytest.mark.repeats
@pytest.mark.parametrize("layer", [CallsPython, CallsPythonInside])
@pytest.mark.parametrize("use", USES)
def test_python_function_in_the_model_is_refused(
    use: str,
    layer: type[keras.layers.Layer],
    strategy: tfps.ParameterServerStrategy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = _model(strategy, layer(name="calls"))
    with reading(tfps.errors.UnsupportedError, caplog) as read:
        USES[use](model, X)
    assert "PyFunc (PyFunc), made at" in str(read.error)
    assert "run_eagerly=True" in str(read.error)


@pytest.mark.repeats
def test_python_function_is_allowed_where_the_chief_runs_it(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    eager = _model(strategy, CallsPython(), run_eagerly=True)
    eager.fit(X, Y, batch_size=32, verbose=0)
    doubled = tf.data.Dataset.from_tensor_slices((X, Y)).map(
        lambda x, y: (tf.ensure_shape(tf.numpy_function(np.negative, [x], tf.float32), [4]), y)
    )
    _model(strategy).fit(doubled.batch(8), verbose=0)


def _embedding(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    return _model(strategy, keras.layers.Embedding(10, 2), keras.layers.Flatten())


def _labels(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _model(strategy, loss=loss)


def _lookup(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        lookup = keras.layers.IntegerLookup(vocabulary=[1, 2, 3], num_oov_indices=0)
        model = keras.Sequential(
            [keras.Input((4,), dtype="int64"), lookup, keras.layers.Embedding(4, 2)]
        )
        model.compile("sgd", "mse")
    return model


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("make", "data", "reason"),
    [
        (_embedding, (np.full([64, 4], 11), Y), r"indices\[\d,\d\] = 11 is not in \[0, 10\)"),
        (
            _embedding,
            (np.full([64, 4], np.nan), Y),
            r"indices\[\d,\d\] = -?\d+ is not in \[0, 10\)",
        ),
        (_labels, (X, np.full([64], 7)), "Received a label value of 7 which is outside the valid"),
        (
            _lookup,
            (np.full([64, 4], 9), np.ones([64, 4, 2])),
            "assertion failed: .*found OOV values",
        ),
    ],
    ids=["id out of range", "NaN as an id", "label out of range", "outside of the vocabulary"],
)
def test_values_that_a_table_does_not_have(
    make: Any,
    data: Any,
    reason: str,
    strategy: tfps.ParameterServerStrategy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = make(strategy)
    with reading(tf.errors.InvalidArgumentError, caplog, shows_line=False) as read:
        model.fit(*data, batch_size=8, verbose=0)
    assert re.match(reason, str(read.error))


@pytest.mark.repeats
def test_shapes_that_do_not_fit(
    strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    model = _model(strategy)
    with reading(ValueError, caplog, shows_line=False) as read:
        model.fit(X[:, :3], Y, verbose=0)
    assert "expected axis -1 of input shape to have value 4" in str(read.error)
    with reading(ValueError, caplog, shows_line=False) as read:
        model.fit(X, Y[:, :2], verbose=0)
    assert "Dimensions must be equal, but are 2 and 3" in str(read.error)


@pytest.mark.repeats
def test_shape_that_only_the_batch_knows(
    strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    """TensorFlow has no traceback for an operation that it fused, but keeps its name."""

    def batches() -> Any:
        yield X[:8], Y[:8]
        yield np.ones([8, 5], np.float32), Y[:8]

    spec = (tf.TensorSpec([None, None]), tf.TensorSpec([None, 3]))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    model = _model(strategy)
    with reading(tf.errors.InvalidArgumentError, caplog, shows_line=False) as read:
        model.fit(dataset, verbose=0)
    assert "Matrix size-incompatible: In[0]: [8,5], In[1]: [4,3]" in str(read.error)
    assert "dense" in str(read.error)


@pytest.mark.rare
@pytest.mark.parametrize(
    "logs",
    [
        lambda: None,
        lambda: "text",
        lambda: {"mine": tf.constant("text")},
        lambda: {"mine": tf.ragged.constant([[1.0], [1.0, 2.0]])},
    ],
    ids=["None", "text", "text in a dictionary", "ragged"],
)
def test_train_step_may_return_what_it_likes(
    logs: Any, strategy: tfps.ParameterServerStrategy
) -> None:
    class Own(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            super().train_step(data)
            return logs()

    with strategy.scope():
        model = Own([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 8


@pytest.mark.repeats
def test_train_step_that_returns_an_object_is_refused(
    strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    class Own(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return {"mine": object()}

    with strategy.scope():
        model = Own([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
    with reading(TypeError, caplog, shows_line=False) as read:
        model.fit(X, Y, verbose=0)
    assert "<object object" in str(read.error)
    assert "to Tensor" in str(read.error)


@pytest.mark.repeats
def test_callback_keeps_its_exception(
    strategy: tfps.ParameterServerStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    class RaisingCallback(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise KeyError("wrong key")  # the mistake

    model = _model(strategy)
    with reading(KeyError, caplog) as read:
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[RaisingCallback()])
    assert MISTAKE in read.text


WAYS: dict[str, Callable[[keras.Model], Any]] = {
    "fit": lambda model: model.fit(X, Y, batch_size=8, verbose=0),
    "evaluate": lambda model: model.evaluate(X, Y, batch_size=8, verbose=0),
    "train_on_batch": lambda model: model.train_on_batch(X, Y),
    "eagerly": lambda model: _eagerly(model).fit(X, Y, batch_size=8, verbose=0),
}


def _eagerly(model: keras.Model) -> keras.Model:
    model.run_eagerly = True
    return model


@pytest.mark.rare
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", [KeyError, ValueError, None], ids=["KeyError", "value", "shapes"])
def test_a_model_that_is_not_built(
    error: type[Exception] | None,
    way: str,
    strategy: tfps.ParameterServerStrategy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error is that of plain Keras, which builds a model in its first step."""

    def used(scope: contextlib.AbstractContextManager[Any]) -> Callable[[], Any]:
        with scope:
            model = NotBuilt(error)
            model.compile("sgd", "mse")
        return lambda: WAYS[way](model)

    kind = error or ValueError
    with reading(kind, caplog) as read:
        used(strategy.scope())()
    if error is None and way == "eagerly":
        # A strategy builds a model before its first step, as a graph; Keras in an eager step.
        assert "Dimensions must be equal, but are 4 and 7" in str(read.error)
        return
    with reading(kind, caplog) as alone:
        used(contextlib.nullcontext())()
    assert type(read.error) is type(alone.error)
    assert str(read.error) == str(alone.error)
