"""Endless input is refused before anything starts, unless the number of steps is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.input.numbered_examples import X, dataset
from tests.messages import raises

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]


def _share(context: tf.distribute.InputContext) -> tf.data.Dataset:
    return dataset().shard(context.num_input_pipelines, context.input_pipeline_id)


def _endless(context: tf.distribute.InputContext) -> tf.data.Dataset:
    return _share(context).repeat()


class BeginCallback(keras.callbacks.Callback):
    """Notes whether a loop has begun."""

    begun = False

    def on_train_begin(self, logs: Any = None) -> None:
        self.begun = True

    on_test_begin = on_predict_begin = on_train_begin


CALLS: dict[str, tuple[str, Callable[..., Any]]] = {
    "function": ("steps_per_epoch", lambda m, **o: m.fit(_endless, **o)),
    "dataset": ("steps_per_epoch", lambda m, **o: m.fit(dataset().repeat(), **o)),
    "validation function": (
        "validation_steps",
        lambda m, **o: m.fit(_share, validation_data=_endless, **o),
    ),
    "validation dataset": (
        "validation_steps",
        lambda m, **o: m.fit(dataset(), validation_data=dataset().repeat(), **o),
    ),
    "evaluate function": ("steps", lambda m, **o: m.evaluate(_endless, **o)),
    "evaluate dataset": ("steps", lambda m, **o: m.evaluate(dataset().repeat(), **o)),
    "predict dataset": (
        "steps",
        lambda m, **o: m.predict(tf.data.Dataset.from_tensors(X).repeat(), **o),
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_endless_input_is_refused(call: str, model: keras.Model) -> None:
    steps, use = CALLS[call]
    callback = BeginCallback()
    with raises(ValueError, "without an end", remedy=f"`{steps}`"):
        use(model, callbacks=[callback], verbose=0)
    assert not callback.begun


@pytest.mark.parametrize("call", CALLS)
def test_endless_input_with_its_steps(call: str, model: keras.Model) -> None:
    steps, use = CALLS[call]
    callback = BeginCallback()
    use(model, **{steps: 3}, callbacks=[callback], verbose=0)
    assert callback.begun


def test_training_until_a_callback_stops_it(
    model: keras.Model, strategy: tfps.ParameterServerStrategy
) -> None:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch >= 20

    before = strategy.stats().updates_applied
    model.fit(_endless, steps_per_epoch=-1, callbacks=[Stop()], verbose=0)
    assert strategy.stats().updates_applied - before >= 20


def test_a_function_whose_dataset_cannot_be_made(model: keras.Model) -> None:
    """A dataset that cannot be made has an unknown length, and the error is that of the input."""

    def unreadable(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return tf.data.Dataset.list_files("no such folder/*").map(lambda _: (X[:8], X[:8, :3]))

    with pytest.raises(Exception, match=r"Input has an error.*No files matched"):
        model.fit(unreadable, verbose=0)
