"""A closure like the last one is copied; one that may take another trace is built."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tfps.bridge.closures.step_closure import StepClosure


class Loop:
    """A function with an argument, and how many of its closures were built."""

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        self.coordinator = strategy.coordinator
        with strategy.scope():
            self.weight = keras.Variable(0.0, name="weight")
            self.optimizer = keras.optimizers.SGD(-1.0)
            self.optimizer.build([self.weight])
        self.step = tf.function(self._step)
        self.built = 0

    def _step(self, by: Any) -> tf.Tensor:
        gradient = tf.cast(by if isinstance(by, int | tf.Tensor) else next(by), tf.float32)
        tf.debugging.assert_positive(gradient)
        self.optimizer.apply([gradient], [self.weight])
        return gradient

    def iterate(self) -> Any:
        data = self.coordinator.create_per_worker_dataset(
            lambda: tf.data.Dataset.from_tensors(2.0).repeat()
        )
        return iter(data)


@pytest.fixture
def loop(
    make_strategy: Callable[..., tfps.ParameterServerStrategy], monkeypatch: pytest.MonkeyPatch
) -> Loop:
    loop, build = Loop(make_strategy()), StepClosure.__init__

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        loop.built += 1
        build(self, *arguments, **options)

    monkeypatch.setattr(StepClosure, "__init__", counted)
    return loop


def test_copies_have_results_of_their_own(loop: Loop) -> None:
    iterator = loop.iterate()
    values = [loop.coordinator.schedule(loop.step, args=(iterator,)) for _ in range(5)]
    assert loop.coordinator.fetch(values) == [2.0] * 5
    assert loop.built == 1
    assert loop.weight.numpy() == 10.0


@pytest.mark.rare
def test_other_arguments_are_not_copied(loop: Loop) -> None:
    one, iterators = tf.constant(1.0), [loop.iterate(), loop.iterate()]
    # Another tensor may have another shape; a number may be a constant of the trace.
    arguments = [one, one, tf.constant(3.0), *iterators, iterators[1], 4, 4]
    values = [loop.coordinator.schedule(loop.step, args=(each,)) for each in arguments]
    assert loop.coordinator.fetch(values) == [1, 1, 3, 2, 2, 2, 4, 4]
    assert loop.built == 6


@pytest.mark.rare
def test_other_contexts_are_not_copied(loop: Loop) -> None:
    def schedule() -> None:
        loop.coordinator.schedule(loop.step, args=(one,))

    one = tf.constant(1.0)
    schedule()
    with tf.device("/device:CPU:0"):
        schedule()
        schedule()
    schedule()
    loop.coordinator.join()
    assert loop.built == 3
    assert loop.weight.numpy() == 4.0


@pytest.mark.rare
def test_after_an_error_a_closure_is_built(loop: Loop) -> None:
    """A copy would be cancelled together with the closure that has failed."""
    wrong, one = tf.constant(-1.0), tf.constant(1.0)
    for _ in range(2):
        loop.coordinator.schedule(loop.step, args=(wrong,))
        with pytest.raises(tf.errors.InvalidArgumentError):
            loop.coordinator.join()
    assert loop.coordinator.schedule(loop.step, args=(one,)).fetch() == 1.0
    assert loop.built == 3


@pytest.mark.rare
def test_a_template_keeps_no_iterator(loop: Loop) -> None:
    iterator = loop.iterate()
    loop.coordinator.schedule(loop.step, args=(iterator,))
    loop.coordinator.join()
    reference = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert reference() is None


@pytest.mark.rare
def test_a_closed_strategy_refuses(
    make_strategy: Callable[..., tfps.ParameterServerStrategy],
) -> None:
    strategy = make_strategy()
    loop, one = Loop(strategy), tf.constant(1.0)
    loop.coordinator.schedule(loop.step, args=(one,))
    loop.coordinator.join()
    strategy.close()
    with pytest.raises(tfps.errors.StrategyClosed):
        loop.coordinator.schedule(loop.step, args=(one,))
