"""Names of variables do not depend on what else a process has made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tfps.checkpoint.names import named_variables


class Block(keras.Model):
    """Two layers of a kind, one inside another, and variables of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(2)
        self.inner = keras.Sequential([keras.layers.Dense(3), keras.layers.Dropout(0.5)])
        self.last = keras.layers.Dense(1)
        self.scale = self.add_weight(shape=(), name="scale")
        self.nameless = keras.Variable([1.0, 2.0])

    def call(self, x: Any) -> Any:
        return self.last(self.inner(self.first(x))) * self.scale


def _subclassed(optimizer: Any) -> keras.Model:
    model = Block()
    model.compile(optimizer, "mse")
    model(np.zeros([1, 4], "float32"))
    return model


def _functional(optimizer: Any) -> keras.Model:
    inputs = keras.Input((4,))
    shared = keras.layers.Dense(4, name="named by its user")
    normal = keras.layers.BatchNormalization()(shared(shared(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(1)(normal))
    model.compile(optimizer, "mse")
    return model


def _recurrent(optimizer: Any) -> keras.Model:
    layers = [keras.layers.Bidirectional(keras.layers.LSTM(2)), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((5, 3)), *layers])
    model.compile(optimizer, "mse")
    return model


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: keras.optimizers.Adam(1e-3, amsgrad=True, use_ema=True),
    "plain sgd": lambda: keras.optimizers.SGD(0.1),
    "adafactor": lambda: keras.optimizers.Adafactor(0.1),
    "nadam, accumulating": lambda: keras.optimizers.Nadam(gradient_accumulation_steps=2),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(momentum=0.5)),
    "staleness aware": lambda: tfps.optimizers.StalenessAware(keras.optimizers.Adam()),
    "schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 10)),
}


@pytest.mark.quick("adam-*", "loss scale-_functional")
@pytest.mark.parametrize("make", [_subclassed, _functional, _recurrent])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_second_model_has_the_same_names(make: Any, optimizer: Callable[[], Any]) -> None:
    models = [make(optimizer()) for _ in range(2)]
    names = []
    for model in models:
        model.optimizer.build(model.trainable_variables)
        named = named_variables(model)
        names.append([(name, tuple(v.shape)) for name, v in named.items()])
        # Each variable once, and none left out.
        expected = [*model.variables, *model.optimizer.variables]
        assert {id(v) for v in named.values()} == {id(v) for v in expected}
        assert len({id(v) for v in named.values()}) == len(named)
    assert names[0] == names[1]
    paths = [[v.path for v in model.variables] for model in models]
    assert paths[0] != paths[1]  # which is what Keras's own names are


def test_they_are_readable() -> None:
    model = _subclassed(keras.optimizers.SGD(0.1, momentum=0.9))
    model.optimizer.build(model.trainable_variables)
    assert list(named_variables(model)) == [
        "model/scale",
        "model/variable",
        "model/dense/kernel",
        "model/dense/bias",
        "model/sequential/dense/kernel",
        "model/sequential/dense/bias",
        "model/sequential/dropout/seed_generator_state",
        "model/dense_1/kernel",
        "model/dense_1/bias",
        "optimizer/iterations",
        "optimizer/learning_rate",
        *(
            f"optimizer/momentums/model/{name}"
            for name in (
                "scale",
                "variable",
                "dense/kernel",
                "dense/bias",
                "sequential/dense/kernel",
                "sequential/dense/bias",
                "dense_1/kernel",
                "dense_1/bias",
            )
        ),
    ]
    assert not any("optimizer" in name for name in named_variables(model, optimizer=False))
