"""Mistakes in the input of `fit`: generators, `PyDataset`, datasets, dataset functions."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.errors.reading import reading
from tests.messages import check_message

X = np.ones([64, 4], np.float32)
Y = np.ones([64, 3], np.float32)
NOT_A_NUMBER = np.where(np.arange(256).reshape(64, 4) == 161, np.nan, X).astype(np.float32)

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]


def _checked(x: Any, y: Any) -> Any:
    return tf.debugging.check_numerics(x, "not a number"), y  # the mistake


def _dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((NOT_A_NUMBER, Y)).map(_checked).batch(8)


def test_generator(sound_model: keras.Model, caplog: pytest.LogCaptureFixture) -> None:
    def batches() -> Any:
        yield X[:8], Y[:8]
        raise KeyError("wrong key")  # the mistake

    with reading(KeyError, caplog) as read:
        sound_model.fit(batches(), verbose=0)
    assert type(read.error) is KeyError


def test_py_dataset(sound_model: keras.Model, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            if index < 3:
                return X[:8], Y[:8]
            raise KeyError("wrong key")  # the mistake

    with reading(tf.errors.UnknownError, caplog) as read:
        sound_model.fit(Broken(), verbose=0)
    assert str(read.error).startswith("KeyError: 'wrong key'\n\nRaised in the input, on the chief")


def test_dataset_of_a_generator(sound_model: keras.Model, caplog: pytest.LogCaptureFixture) -> None:
    def examples() -> Any:
        yield X[0], Y[0]
        raise KeyError("wrong key")  # the mistake

    spec = (tf.TensorSpec([4]), tf.TensorSpec([3]))
    dataset = tf.data.Dataset.from_generator(examples, output_signature=spec).batch(8)
    with reading(tf.errors.UnknownError, caplog):
        sound_model.fit(dataset, verbose=0)
    with reading(tf.errors.UnknownError, caplog):
        sound_model.evaluate(dataset, verbose=0)


@pytest.mark.parametrize("where", ["chief", "workers"])
def test_function_of_a_dataset(
    where: str, sound_model: keras.Model, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = _dataset()
    if where == "chief":  # a function of Python keeps it there
        dataset = dataset.map(
            lambda x, y: (tf.ensure_shape(tf.numpy_function(abs, [x], tf.float32), [8, 4]), y)
        )
    with reading(tf.errors.InvalidArgumentError, caplog) as read:
        sound_model.fit(dataset, verbose=0)
    assert str(read.error).startswith("not a number : Tensor had NaN values\n\nRaised ")


def test_dataset_function_that_raises(
    sound_model: keras.Model, caplog: pytest.LogCaptureFixture
) -> None:
    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        raise KeyError("wrong key")  # the mistake

    with reading(KeyError, caplog) as read:
        sound_model.fit(make, verbose=0)
    assert type(read.error) is KeyError


def test_dataset_function_whose_dataset_fails(
    sound_model: keras.Model, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(tf.errors.InvalidArgumentError, caplog) as read:
        sound_model.fit(lambda context: _dataset(), verbose=0)
    assert "Raised on worker" in str(read.error)


def test_dataset_function_that_makes_no_dataset(
    sound_model: keras.Model, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(TypeError, caplog, shows_line=False) as read:
        sound_model.fit(lambda context: [1, 2], verbose=0)
    check_message(str(read.error), "dataset function", received="list", remedy="tf.data.Dataset")


def test_data_that_ends_early(
    sound_model: keras.Model, strategy: tfps.ParameterServerStrategy
) -> None:
    """Like Keras, `fit` warns and ends the epoch with the batches that there were."""
    before = strategy.stats().updates_applied
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    with pytest.warns(UserWarning, match="ran out of data"):
        sound_model.fit(dataset, steps_per_epoch=20, verbose=0)
    assert strategy.stats().updates_applied == before + 8


def test_lengths_that_differ(sound_model: keras.Model, caplog: pytest.LogCaptureFixture) -> None:
    with reading(ValueError, caplog, shows_line=False) as read:
        sound_model.fit(X, Y[:30], verbose=0)
    assert "Data cardinality is ambiguous" in str(read.error)
