"""Comparison of a Keras program under a strategy with one worker and without a strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps

LOCAL = "CPU:0"
RANDOM = np.random.default_rng(0)
EXAMPLES, BATCH = 64, 16
STEPS = EXAMPLES // BATCH
X = RANDOM.normal(size=(EXAMPLES, 8)).astype("float32")
LABELS = X[:, :3].argmax(1)
TOLERANCE = 1e-5

Numbers = Mapping[str, Any]


def cross_entropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def classifier() -> keras.Sequential:
    """Three classes from eight features, with state and with chance."""
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu", name="hidden"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(3, name="head"),
        ]
    )


def compiled(optimizer: Any = None, **options: Any) -> keras.Model:
    model = classifier()
    optimizer = optimizer or keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, cross_entropy(), metrics=["accuracy"], **options)
    return model


def linear(optimizer: Any = "sgd") -> keras.Model:
    """One layer, compiled: for what does not depend on the model, and is traced sooner."""
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    model.compile(optimizer, cross_entropy())
    return model


def densify(optimizer: Any) -> None:
    """Give an optimizer the gradients of tables as whole tensors.

    From rows Keras 3.15 updates the slots of an id that a batch has twice with one of the two only.
    """
    apply = optimizer.apply

    def apply_dense(gradients: Any, variables: Any = None) -> Any:
        return apply([g if g is None else tf.convert_to_tensor(g) for g in gradients], variables)

    optimizer.apply = apply_dense


def fit(model: keras.Model, x: Any = X, y: Any = LABELS, **options: Any) -> dict[str, Any]:
    """The history of two epochs in the order of the examples."""
    options = {"batch_size": BATCH, "epochs": 2, "verbose": 0, "shuffle": False, **options}
    history: dict[str, Any] = model.fit(x, y, **options).history
    return history


def iterations(model: keras.Model) -> int:
    return int(model.optimizer.iterations.numpy())


def assert_same(found: Any, expected: Any, *, tolerance: float = TOLERANCE, what: str = "") -> None:
    """Numbers, or weights in order, that agree."""
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), atol=tolerance, err_msg=what
        )


def assert_same_state(
    found: keras.Model, expected: keras.Model, *, tolerance: float = TOLERANCE
) -> None:
    """The weights of two models and the state of their optimizers."""
    assert_same(
        found.get_weights(), expected.get_weights(), tolerance=tolerance, what="the weights"
    )
    optimizers = [each.optimizer for each in (found, expected)]
    if all(optimizer is not None and optimizer.built for optimizer in optimizers):
        states = [[v.numpy() for v in optimizer.variables] for optimizer in optimizers]
        assert_same(*states, tolerance=tolerance, what="the optimizer")


def lie_on_servers(strategy: tfps.ParameterServerStrategy, variables: Sequence[Any]) -> bool:
    """Whether none of the variables is on a worker or the chief."""
    return {v.value.device for v in variables} <= set(strategy.runtime.topology.servers)


class Comparison:
    """Runs programs twice.

    Args:
        strategy: of one worker.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        self.strategy = strategy

    def pair(self, make: Callable[[], Any] = compiled) -> tuple[Any, Any]:
        """Return what ``make`` builds under the strategy, and the same on one machine."""
        keras.utils.set_random_seed(1)
        with tf.device(LOCAL):
            local = make()
        for model in _listed(local):
            if getattr(model, "optimizer", None) is not None:
                densify(model.optimizer)
        keras.utils.set_random_seed(1)
        with self.strategy.scope():
            distributed = make()
        return distributed, local

    def run(
        self,
        make: Callable[[], Any] = compiled,
        use: Callable[[Any], Numbers] = fit,
        *,
        tolerance: float = TOLERANCE,
    ) -> Any:
        """Use models as a program would; return the one of the cluster.

        Args:
            make: builds and compiles a model, or a list of them.
            use: trains and so on; returns numbers by name.
            tolerance: of those numbers, of weights and of the optimizer's state.
        """
        distributed, local = self.pair(make)
        results = []
        for each in (local, distributed):
            keras.utils.set_random_seed(7)
            results.append(use(each))
        expected, found = results
        assert list(found) == list(expected), set(found) ^ set(expected)
        for name, values in expected.items():
            assert_same(_flat(found[name]), _flat(values), tolerance=tolerance, what=name)
        for one, other in zip(_listed(distributed), _listed(local), strict=True):
            assert_same_state(one, other, tolerance=tolerance)
        return distributed


def _flat(values: Any) -> Sequence[Any]:
    return [np.asarray(value) for value in tf.nest.flatten(values)]


def _listed(models: Any) -> list[Any]:
    return list(models) if isinstance(models, list | tuple) else [models]
