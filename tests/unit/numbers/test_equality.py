"""One worker and one or two servers give the numbers of Keras on one machine."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.testing import InProcessCluster

STEPS, BATCH = 12, 32
TOLERANCE = 1e-6
# Every class of keras.optimizers that can be made, found now: a new one is tested by itself.
CLASSES = sorted(
    name
    for name, value in vars(keras.optimizers).items()
    if inspect.isclass(value)
    and issubclass(value, keras.optimizers.Optimizer)
    and value is not keras.optimizers.Optimizer
)
# Rates at which 12 steps move weights by more than 1e-2.
RATES = {"Adadelta": 10.0, "Ftrl": 0.1, "SGD": 0.1, "Adagrad": 0.05, "Lion": 0.003}


def _make(name: str) -> Any:
    if name == "LossScaleOptimizer":
        return keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01), dynamic_growth_steps=5
        )
    if name == "MultiOptimizer":
        adam, sgd = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1)
        return keras.optimizers.MultiOptimizer(lambda v: adam if "kernel" in v.path else sgd)
    return getattr(keras.optimizers, name)(learning_rate=RATES.get(name, 0.01))


VARIANTS: dict[str, Callable[[], Any]] = {n: functools.partial(_make, n) for n in CLASSES}
VARIANTS |= {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "clipnorm": lambda: keras.optimizers.Adam(0.01, clipnorm=0.1),
    "clipvalue": lambda: keras.optimizers.Adam(0.01, clipvalue=0.01),
    "global_clipnorm": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.1),
    "weight_decay": lambda: keras.optimizers.SGD(0.1, weight_decay=0.05),
    "moving_average": lambda: keras.optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5
    ),
    "accumulation": lambda: keras.optimizers.Adam(0.02, gradient_accumulation_steps=3),
    "schedule": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.02, 5, 0.9)
    ),
    "staleness_aware": lambda: tfps.optimizers.StalenessAware(keras.optimizers.Adam(0.01)),
    "dana": lambda: tfps.optimizers.DANA(0.05),
    "async_adam": lambda: tfps.optimizers.AsyncAdam(0.01),
    "ordered": lambda: tfps.optimizers.AsyncAdam(0.01, "ordered", weight_decay=0.1),
    "amsgrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "loss_scale_and_global_clipnorm": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.5, global_clipnorm=0.1)
    ),
}

# How an update comes about: by all servers together, by several steps; one by itself is in
# tests/cluster/training/test_same_numbers.py.
WAYS = ["loss_scale_and_global_clipnorm", "accumulation"]

# Where nothing is stale, not a bit differs.
IDENTICAL = {"staleness_aware": "Adam", "dana": "momentum"}


def _model() -> keras.Model:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(3),
        ]
    )


def _train(model: keras.Model, optimizer: Any) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS * BATCH, 8)).astype("float32")
    y = random.integers(0, 3, size=STEPS * BATCH)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    optimizer.build(model.trainable_variables)
    model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    return [np.array(weight) for weight in model.get_weights()]


def test_all_classes_are_found() -> None:
    assert {"Adam", "SGD", "Lamb", "Muon", "Adafactor", "LossScaleOptimizer"} <= set(CLASSES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("servers", "variants"),
    [
        # Two servers are the harder case.
        (2, WAYS),
        pytest.param(2, list(VARIANTS), marks=pytest.mark.repeats),
        pytest.param(1, CLASSES, marks=pytest.mark.repeats),
    ],
    ids=["two servers", "two servers, all", "one server, all"],
)
def test_same_numbers_as_one_machine(
    servers: int, variants: list[str], cluster: Callable[..., InProcessCluster]
) -> None:
    strategy = tfps.ParameterServerStrategy(cluster(workers=1, ps=servers).cluster_resolver)
    differing, trained = {}, {}
    for name in variants:
        make = VARIANTS[name]
        with tf.device("CPU:0"):
            local = _model()
            start = [np.array(weight) for weight in local.get_weights()]
            expected = _train(local, make())
        with strategy.scope():
            model = _model()
            found = trained[name] = _train(model, make())
        moved = max(np.abs(a - b).max() for a, b in zip(start, expected, strict=True))
        error = max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True))
        if moved < 1e-2 or not error <= TOLERANCE:
            differing[name] = f"moved {moved:.1e}, differs by {error:.1e}"
    assert strategy.stats().fallback_steps == 0
    strategy.close()
    for name, same in IDENTICAL.items():
        if {name, same} <= set(trained):
            pairs = zip(trained[name], trained[same], strict=True)
            if any((one != two).any() for one, two in pairs):
                differing[name] = f"is not {same} to the bit"
    assert not differing
