"""Variables that no update and no assignment has touched are not sent again; none is stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.numbers.comparison import Comparison, assert_same, cross_entropy, fit
from tfps.testing import InProcessCluster

WIDE, EPOCHS, STEPS = 256, 2, 4
FROZEN_BYTES = 4 * (8 + 1) * WIDE
TRAINED_BYTES = 4 * (WIDE + 1) * 3
MANY_STEPS = 1500

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def strategies(
    cluster: Callable[..., InProcessCluster],
) -> Iterator[Callable[..., tfps.ParameterServerStrategy]]:
    """Strategies of one worker and two servers, until the test ends."""
    made = []

    def make(mode: Any = None, **options: Any) -> tfps.ParameterServerStrategy:
        resolver = cluster(workers=1, ps=2).cluster_resolver
        made.append(tfps.ParameterServerStrategy(resolver, consistency=mode, **options))
        return made[-1]

    yield make
    for strategy in made:
        strategy.close()


def _fine_tuned(optimizer: Any = None) -> keras.Model:
    """A model whose wide layer is frozen, normalisation included."""
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(WIDE, activation="relu", name="frozen", trainable=False),
            keras.layers.BatchNormalization(trainable=False),
            keras.layers.Dense(3, name="head"),
        ]
    )
    model.compile(optimizer or keras.optimizers.SGD(0.1, momentum=0.9), cross_entropy())
    return model


@pytest.mark.repeats
@pytest.mark.parametrize(
    "mode",
    [tfps.Asynchronous(), tfps.BoundedStaleness(1), tfps.Synchronous(), tfps.LocalSteps(1)],
    ids=str,
)
def test_frozen_layers_travel_when_a_worker_joins_and_no_more(
    strategies: Callable[..., tfps.ParameterServerStrategy], mode: Any
) -> None:
    strategy = strategies(mode)
    rounds = mode.backup_workers is not None
    model, local = Comparison(strategy).pair(_fine_tuned)
    assert_same(fit(model)["loss"], fit(local)["loss"])
    assert_same(model.get_weights(), local.get_weights())
    joins = EPOCHS * (2 if rounds else 1)  # a round's parameters come after the first ones
    everything = FROZEN_BYTES + TRAINED_BYTES + 4 * 4 * WIDE
    pulled = strategy.stats().bytes_pulled
    assert pulled < joins * everything + EPOCHS * STEPS * TRAINED_BYTES + 20_000
    assert pulled >= EPOCHS * everything + EPOCHS * STEPS * TRAINED_BYTES


@pytest.mark.repeats
def test_a_variable_that_no_gradient_reaches_is_idle(
    strategies: Callable[..., tfps.ParameterServerStrategy],
) -> None:
    """It is trainable, and the optimizer knows it; the step stops its gradient."""

    class StoppedGradient(keras.layers.Dense):
        def call(self, inputs: Any) -> Any:
            return keras.ops.stop_gradient(super().call(inputs))

    def make() -> keras.Model:
        model = keras.Sequential(
            [
                keras.Input((8,)),
                StoppedGradient(WIDE, name="idle"),
                keras.layers.Dense(3, name="head"),
            ]
        )
        model.compile("sgd", cross_entropy())
        return model

    strategy = strategies()
    model, local = Comparison(strategy).pair(make)
    assert_same(fit(model)["loss"], fit(local)["loss"])
    assert_same(model.get_weights(), local.get_weights())
    joined = EPOCHS * (FROZEN_BYTES + TRAINED_BYTES)
    assert strategy.stats().bytes_pulled < joined + EPOCHS * STEPS * TRAINED_BYTES + 20_000


class Assignment(keras.callbacks.Callback):
    """Writes another kernel into the frozen layer in the middle of an epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            kernel = self.model.layers[0].kernel
            kernel.assign(kernel * 0.5)


@pytest.mark.rare
@pytest.mark.quick("Asynchronous*")
@pytest.mark.parametrize("mode", [tfps.Asynchronous(), tfps.Synchronous()], ids=str)
def test_a_callback_that_assigns_one_is_seen_by_the_next_step(
    strategies: Callable[..., tfps.ParameterServerStrategy], mode: Any
) -> None:
    comparison = Comparison(strategies(mode))
    comparison.run(_fine_tuned, lambda model: fit(model, callbacks=[Assignment()]))


@pytest.mark.repeats
def test_what_was_frozen_can_be_trained_and_frozen_again(
    strategies: Callable[..., tfps.ParameterServerStrategy],
) -> None:
    """It then shares a slab with variables that are still trained."""

    def use(model: keras.Model) -> Any:
        history = []
        for trainable in (False, True, False):
            model.layers[0].trainable = trainable
            model.compile(keras.optimizers.Adam(0.01), cross_entropy())
            history.append(fit(model)["loss"])
        return {"losses": history}

    Comparison(strategies()).run(_fine_tuned, use)


class Shift(keras.layers.Layer):
    """Adds a weight, which is not trained."""

    def build(self, shape: Any) -> None:
        self.shift = self.add_weight(shape=(), initializer="zeros", name="shift", trainable=False)

    def call(self, inputs: Any) -> Any:
        return inputs * 0.0 + self.shift


@pytest.mark.repeats
def test_a_push_of_others_is_seen_without_a_new_closure_run(
    strategies: Callable[..., tfps.ParameterServerStrategy],
) -> None:
    """The chief pushes at the first step that it sees of many; the worker goes on meanwhile."""
    strategy = strategies(batch_callbacks="sampled")
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1), Shift()])
        model.compile("sgd", loss=lambda _, prediction: keras.ops.mean(prediction))
    name = model.layers[1].shift.path
    model.fit(np.zeros([1, 1]), np.zeros([1, 1]), verbose=0)
    strategy.push({name: np.float32(0.0)}, strategy.pull([name])[1])  # traces, which takes a second
    incarnations = []

    class Push(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            incarnations.append(strategy.runtime.members.latest_incarnation(0))
            if batch == 0:
                _, version = strategy.pull([name])
                strategy.push({name: np.float32(-100.0)}, version)

    data = np.zeros([MANY_STEPS, 1], "float32"), np.zeros([MANY_STEPS, 1], "float32")
    history = model.fit(*data, batch_size=1, callbacks=[Push()], verbose=0)
    assert 0.0 < history.history["loss"][0] < 100.0
    assert len(set(incarnations)) == 1
    assert float(model.layers[1].shift.numpy()) == 100.0
