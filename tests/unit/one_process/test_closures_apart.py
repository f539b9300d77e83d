"""Closures that do not run together with those behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.one_process.forced_runs import ForcedRuns

COUNT = 6
raw = tf.raw_ops


class Functions:
    """Functions that train a weight and cannot be steps of a run, and two that can."""

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        with strategy.scope():
            self.weight = keras.Variable(0.0, name="weight")
            self.optimizer = keras.optimizers.SGD(-1.0)
            self.optimizer.build([self.weight])
            self.own = tf.Variable(0.0, name="raw")
        self.first, self.second = tf.function(self._train), tf.function(self._train)

    def _train(self, *_: Any) -> tf.Tensor:
        self.optimizer.apply([tf.constant(1.0)], [self.weight])
        return tf.constant(2.0)

    def output_of_unknown_shape(self) -> tf.Tensor:
        self._train()
        return tf.range(tf.cast(self.weight, tf.int32))

    def text(self) -> tf.Tensor:
        self._train()
        return tf.constant("text")

    def ragged(self) -> tf.RaggedTensor:
        self._train()
        return tf.ragged.constant([[1], [2, 3]])

    def sparse(self) -> tf.SparseTensor:
        self._train()
        return tf.sparse.from_dense([0, 1])

    def large_output(self) -> tf.Tensor:
        self._train()
        return tf.zeros([3 << 20], tf.uint8)

    def random_number(self) -> tf.Tensor:
        self._train()
        return raw.RandomUniform(shape=[1], dtype=tf.float32)

    def index_of_the_worker(self) -> tf.Tensor:
        self._train()
        return tf.distribute.coordinator.experimental_get_current_worker_index()

    def variable_of_tensorflow(self) -> tf.Tensor:
        self._train()
        return self.own.assign_add(1.0)

    def no_variable_of_keras(self) -> tf.Tensor:
        return tf.constant(1.0)


REASONS = {
    "output_of_unknown_shape": "no fixed size",
    "text": "no fixed size",
    "ragged": "no fixed size",
    "sparse": "no fixed size",
    "large_output": "its outputs are large",
    "random_number": "RandomUniform",
    "index_of_the_worker": "a value at each call",
    "variable_of_tensorflow": "does not know a step that comes again",
    "no_variable_of_keras": "no function of variables on servers",
}


@pytest.mark.quick("text", "variable_of_tensorflow")
@pytest.mark.parametrize("name", REASONS)
def test_functions_that_run_one_by_one(
    make_strategy: Callable[..., tfps.ParameterServerStrategy],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    caplog.set_level("INFO", logger="tfps")
    strategy = make_strategy()
    functions, runs = Functions(strategy), ForcedRuns(strategy, monkeypatch)
    runs.schedule(tf.function(getattr(functions, name)), COUNT)
    runs.coordinator.join()
    assert not runs.sizes
    assert REASONS[name] in caplog.text
    if name != "no_variable_of_keras":
        assert functions.weight.numpy() == COUNT


@pytest.mark.rare
def test_modes_in_which_closures_run_one_by_one(
    make_strategy: Callable[..., tfps.ParameterServerStrategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if runs were allowed by mistake."""
    for mode in (tfps.BoundedStaleness(2), tfps.LocalSteps(2)):
        strategy = make_strategy(mode)
        functions, runs = Functions(strategy), ForcedRuns(strategy, monkeypatch)
        runs.schedule(functions.first, COUNT)
        runs.coordinator.join()
        assert not runs.sizes


@pytest.mark.rare
def test_other_functions_and_arguments_do_not_join(
    make_strategy: Callable[..., tfps.ParameterServerStrategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make_strategy()
    functions, runs = Functions(strategy), ForcedRuns(strategy, monkeypatch)
    runs.queue.workers = 1
    one, two = tf.constant(1.0), tf.constant(2.0)
    orders: list[list[tuple[Any, tuple[Any, ...]]]] = [
        [(functions.first, ()), (functions.second, ())],
        [(functions.first, (one,)), (functions.first, (two,))],
        [(functions.first, (np.ones([1]),))] * 2,
    ]
    for order in orders:
        with runs.hold():
            for function, args in order * COUNT:
                runs.coordinator.schedule(function, args=args)
        runs.coordinator.join()
    assert not runs.sizes
    assert functions.weight.numpy() == 2 * COUNT * len(orders)
    with runs.hold():  # each kind joins its own
        for function, args in [*[orders[0][0]] * COUNT, *[orders[0][1]] * COUNT]:
            runs.coordinator.schedule(function, args=args)
    runs.coordinator.join()
    assert sorted(runs.sizes) == [(COUNT, COUNT)] * 2
    assert functions.weight.numpy() == 2 * COUNT * (1 + len(orders))
