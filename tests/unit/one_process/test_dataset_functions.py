"""Pipelines of workers may differ in the sizes of their batches, and in nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tfps.bridge import tensorflow_private as private

Make = Callable[..., tfps.ParameterServerStrategy]


def _averaging_model() -> keras.Model:
    """Return a model that takes inputs of any width."""
    inputs = keras.Input((None,))
    mean = keras.layers.Lambda(lambda x: keras.ops.mean(x, axis=1, keepdims=True))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(mean))
    model.compile("sgd", "mse")
    return model


def _of_other_lengths(context: tf.distribute.InputContext) -> tf.data.Dataset:
    length = 8 + 4 * context.input_pipeline_id
    x = np.ones((4 * length, 4), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(length, drop_remainder=True)


def _of_other_widths(context: tf.distribute.InputContext) -> tf.data.Dataset:
    x = np.ones((32, 3 + context.input_pipeline_id), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)


def _of_other_types(context: tf.distribute.InputContext) -> tf.data.Dataset:
    x = np.ones((32, 4), "int32" if context.input_pipeline_id else "float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)


def _of_other_structures(context: tf.distribute.InputContext) -> tf.data.Dataset:
    x = np.ones((32, 4), "float32")
    batch = {"x": x, "y": x} if context.input_pipeline_id else (x, x)
    return tf.data.Dataset.from_tensor_slices(batch).batch(8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "examples"), [(_of_other_lengths, 32 + 48), (_of_other_widths, 32 + 32)]
)
def test_batches_of_each_worker_have_their_own_size(
    make_strategy: Make, function: Callable[..., tf.data.Dataset], examples: int
) -> None:
    strategy = make_strategy()
    with strategy.scope():
        model = _averaging_model()
    model.fit(function, verbose=0)
    assert strategy.stats().updates_applied == 8
    assert strategy.stats().examples_seen == examples


@pytest.mark.parametrize("function", [_of_other_types, _of_other_structures])
def test_other_differences_are_refused(
    make_strategy: Make, function: Callable[..., tf.data.Dataset]
) -> None:
    strategy = make_strategy()
    with strategy.scope():
        model = _averaging_model()
    with raises(ValueError, "dataset function", received="for one worker", remedy="the same types"):
        model.fit(function, verbose=0)


class BusyWorker(keras.callbacks.Callback):
    """Drains the workers within an epoch, then keeps one away until the other has two closures."""

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        super().__init__()
        self._queue = private.get_closure_queue(strategy.coordinator)
        self.worker: threading.Thread | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.worker is None:
            self.model.get_weights()
            begun = self._queue.started_count
            self._queue.block_worker(1)
            self.worker = threading.Thread(target=self._admit, args=[begun + 2])
            self.worker.start()

    def _admit(self, begun: int) -> None:
        ends_at = time.monotonic() + 60
        while self._queue.started_count < begun and time.monotonic() < ends_at:
            time.sleep(0.001)
        self._queue.unblock_worker(1)


@pytest.mark.rare
def test_a_worker_that_was_busy_after_a_pause_uses_the_rest_of_its_data(
    make_strategy: Make,
) -> None:
    """The other one takes both closures, and finds its own data used up."""
    strategy = make_strategy(batch_callbacks="sampled")
    with strategy.scope():
        model = _averaging_model()
    busy = BusyWorker(strategy)

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        x = np.ones((100, 4), "float32")
        return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(1)

    model.fit(batches, verbose=0, callbacks=[busy])
    assert busy.worker is not None
    busy.worker.join()
    assert strategy.stats().updates_applied == 200


def test_a_dataset_from_outside_of_the_function_is_refused(make_strategy: Make) -> None:
    strategy = make_strategy()
    with strategy.scope():
        model = _averaging_model()
    x = np.ones((32, 4), "float32")
    outside = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)
    coordinator = tfps.ClusterCoordinator(strategy)

    def derived() -> tf.data.Dataset:
        return outside.map(lambda x, y: (2 * x, y))

    for use in (
        lambda: model.fit(lambda: outside, verbose=0),
        lambda: model.evaluate(derived, verbose=0),
        lambda: model.fit(tfps.ShardedDataset(lambda: outside, number=2), verbose=0),
        lambda: iter(coordinator.create_per_worker_dataset(derived)),
    ):
        with raises(tfps.errors.UnsupportedError, "dataset function", received="outside of it"):
            use()
    model.fit(outside, verbose=0)  # the process goes on


def test_a_dataset_function_of_a_custom_loop_may_have_a_default(make_strategy: Make) -> None:
    """One function serves `fit`, which passes a context, and `create_per_worker_dataset`."""
    coordinator = tfps.ClusterCoordinator(make_strategy())

    def make_numbers(context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        return tf.data.Dataset.range(3 if context is None else 9)

    iterator = iter(coordinator.create_per_worker_dataset(make_numbers))

    @tf.function
    def count(iterator: Any) -> tf.Tensor:
        return tf.add_n([next(iterator) for _ in range(3)])

    assert coordinator.fetch(coordinator.schedule(count, args=(iterator,))) == 3


def test_what_is_cancelled_each_time_ends_with_its_error(make_strategy: Make) -> None:
    """TensorFlow began an input again in nested calls, up to a `RecursionError`."""
    coordinator, made = make_strategy().coordinator, list[int]()
    cancelled = tf.errors.CancelledError(None, None, "cancelled by /job:worker/replica:0/task:0")

    def make() -> tf.Tensor:
        made.append(len(made))
        if made[-1] != 70:  # fewer at a time are tried again
            raise cancelled
        return tf.constant(1)

    (first, *_) = private.create_on_workers(coordinator, [make, lambda: None])
    with pytest.raises(private.ClosureInputError) as caught:
        private.wait_for_result(first)
    assert caught.value.original_exception is cancelled
    (second, *_) = private.create_on_workers(coordinator, [make, lambda: None])
    assert int(private.wait_for_result(second)) == 1
