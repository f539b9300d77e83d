"""Ways to train a model: each returns numbers that one process has, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import LOCAL, cross_entropy
from tests.unit.numbers.large_tables import step_of

Numbers = dict[str, Any]
EPOCHS = 2  # of `fit`


def _fit(model: keras.Model, data: Any, _: Any) -> Numbers:
    history: Numbers = model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0).history
    return history


def _fit_and_use(model: keras.Model, data: Any, _: Any) -> Numbers:
    options = {"validation_data": data, "shuffle": False, "verbose": 0}
    history = model.fit(data, epochs=EPOCHS, **options).history
    return {
        **history,
        "evaluated": model.evaluate(data, verbose=0),
        "predicted": model.predict(data, verbose=0),
    }


def _functions(calls: int) -> Callable[..., Numbers]:
    def train(model: keras.Model, data: Any, strategy: Any) -> Numbers:
        return _scheduled(step_of(model, calls), data, strategy)

    return train


def _loop(model: keras.Model, data: Any, strategy: Any) -> Numbers:
    """A function whose loop takes two steps on each batch."""
    take = step_of(model, 1)

    def steps(x: Any, labels: Any) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(2):
            loss = take(x, labels)
        return loss

    return _scheduled(steps, data, strategy)


def _assigning(model: keras.Model, data: Any, strategy: Any) -> Numbers:
    """A function whose loop assigns weights before it trains them, and after."""
    take, weights = step_of(model, 1), model.trainable_variables

    def steps(x: Any, labels: Any) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(2):
            weights[0].assign(0.9 * weights[0])
            loss = take(x, labels)
            weights[-1].assign(tf.clip_by_value(weights[-1], -0.05, 0.05))
        return loss

    return _scheduled(steps, data, strategy)


def _scheduled(step: Callable[..., Any], data: Any, strategy: Any) -> Numbers:
    function = tf.function(step)
    if strategy is None:
        return {"loss": [float(function(*batch)) for batch in data]}
    coordinator = tfps.ClusterCoordinator(strategy)
    losses = [coordinator.schedule(function, args=batch) for batch in _on_the_chief(data)]
    coordinator.join()
    return {"loss": [float(loss.fetch()) for loss in losses]}


def _on_the_chief(data: Any) -> Iterator[Any]:
    with tf.device(LOCAL):
        yield from data


def _gradients_of(call: Any, model: keras.Model, data: Any) -> Callable[[], list[Any]]:
    x, labels = next(iter(data))

    def gradients() -> list[Any]:
        with tf.GradientTape() as tape:
            loss = cross_entropy()(labels, call(x))
        found: list[Any] = tape.gradient(loss, model.trainable_variables)
        return found

    return gradients


def _in_another_function(model: keras.Model, data: Any, strategy: Any) -> Numbers:
    """The function that looks rows up is not the one that calls the optimizer."""
    gradients = _gradients_of(tf.function(model), model, data)
    coordinator = tfps.ClusterCoordinator(strategy)
    coordinator.schedule(
        tf.function(lambda: model.optimizer.apply(gradients(), model.trainable_variables))
    )
    coordinator.join()
    return {}


def _on_the_coordinator(model: keras.Model, data: Any, _: Any) -> Numbers:
    gradients = _gradients_of(model, model, data)
    model.optimizer.apply(gradients(), model.trainable_variables)
    return {}


def _push(model: keras.Model, data: Any, strategy: Any) -> Numbers:
    gradients = _gradients_of(model, model, data)
    named = zip(model.trainable_variables, gradients(), strict=True)
    _, version = strategy.pull([])
    strategy.push({v.path: g for v, g in named}, version, optimizer=model.optimizer)
    return {}


def _push_in_a_function(model: keras.Model, _: Any, strategy: Any) -> Numbers:
    name = model.trainable_variables[0].path

    @tf.function
    def push() -> None:
        values, version = strategy.pull([name])
        strategy.push({name: values[name]}, version)

    strategy.coordinator.schedule(push)
    strategy.coordinator.join()
    return {}


def _push_rows(model: keras.Model, _: Any, strategy: Any) -> Numbers:
    """Rows that a function pulls and pushes."""
    path = model.trainable_variables[0].path

    @tf.function
    def push() -> None:
        rows, version = strategy.pull_rows(path, [1, 2])
        strategy.push_rows(path, [1, 2], rows, version)

    strategy.coordinator.schedule(push)
    strategy.coordinator.join()
    return {}


WAYS: dict[str, Callable[[keras.Model, Any, Any], Numbers]] = {
    "fit": _fit,
    "fit, evaluate, predict": _fit_and_use,
    "functions": _functions(1),
    "two calls": _functions(2),  # the second computes from what the first has changed
    "loop": _loop,
    "assigning": _assigning,
    "gradients of another function": _in_another_function,
    "on the coordinator": _on_the_coordinator,
    "strategy.push": _push,
    "strategy.push in a function": _push_in_a_function,
    "push_rows in a function": _push_rows,
}
