"""Models whose `fit` or `evaluate` is another one train on the workers if it calls Keras's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.messages import raises
from tfps.errors import UnsupportedError

pytestmark = pytest.mark.timeout(120)

Make = Callable[..., tfps.ParameterServerStrategy]
X, Y = np.ones([24, 3], "float32"), np.ones([24, 1], "float32")


class Own(keras.Sequential):
    """Logs what it is about to do, as many models do."""

    calls: list[str]

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append("fit")
        return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append("evaluate")
        return super().evaluate(*args, **kwargs)


class OwnTestFunction(keras.Sequential):
    def make_test_function(self, force: bool = False) -> Any:
        return super().make_test_function(force)


def compiled(strategy: tfps.ParameterServerStrategy, kind: type[keras.Sequential]) -> Any:
    with strategy.scope():
        model = kind([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


def check_on_workers(strategy: tfps.ParameterServerStrategy, model: Any) -> None:
    history = model.fit(X, Y, batch_size=4, epochs=2, verbose=0, validation_data=(X, Y)).history
    assert len(history["val_loss"]) == 2
    assert int(model.optimizer.iterations.numpy()) == 12
    assert sum(strategy.stats().worker_steps) == 12


@pytest.mark.slow
def test_a_subclass_that_calls_keras(make_strategy: Make) -> None:
    model = compiled(strategy := make_strategy(), Own)
    model.calls = []
    check_on_workers(strategy, model)
    assert model.calls == ["fit", "evaluate", "evaluate"]
    model.evaluate(X, Y, verbose=0)
    model.train_on_batch(X, Y)


@pytest.mark.repeats
def test_a_patch_of_all_models(make_strategy: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch `keras.Model` as `mlflow.tensorflow.autolog` does, with a callback of its own."""
    original, begun = keras.Model.fit, list[str]()

    @functools.wraps(original)
    def fit(self: Any, *args: Any, callbacks: Any = (), **kwargs: Any) -> Any:
        begin = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: begun.append("train"))
        return original(self, *args, callbacks=[*callbacks, begin], **kwargs)

    monkeypatch.setattr(keras.Model, "fit", fit)
    check_on_workers(strategy := make_strategy(), compiled(strategy, keras.Sequential))
    assert begun == ["train"]


@pytest.mark.repeats
def test_another_test_function_is_refused(make_strategy: Make) -> None:
    model = compiled(make_strategy(), OwnTestFunction)
    with raises(
        UnsupportedError, "OwnTestFunction", received="make_test_function()", remedy="test_step()"
    ):
        model.evaluate(X, Y, verbose=0)
