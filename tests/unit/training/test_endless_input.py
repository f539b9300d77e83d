"""Inputs that would never end are refused, and the error names the missing argument."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.training.input.endless_input import refuse_endless_input

FINITE = tf.data.Dataset.from_tensor_slices((np.ones([8, 4]), np.ones([8, 1]))).batch(2)
ENDLESS = FINITE.repeat()


class Endless(keras.utils.PyDataset):
    num_batches = None

    def __getitem__(self, index: int) -> Any:
        return np.ones([2, 4]), np.ones([2, 1])


def _check(method: str, **arguments: Any) -> None:
    strategy: Any = None
    refuse_endless_input(method, arguments, strategy=strategy)


@pytest.mark.parametrize(
    ("method", "data", "steps"),
    [
        ("fit", "x", "steps_per_epoch"),
        ("fit", "validation_data", "validation_steps"),
        ("evaluate", "x", "steps"),
        ("predict", "x", "steps"),
    ],
)
@pytest.mark.parametrize("endless", [ENDLESS, Endless()], ids=["Dataset", "PyDataset"])
def test_the_caller_is_told_which_argument_is_missing(
    endless: Any, method: str, data: str, steps: str
) -> None:
    key, received = f"{method} received a ", f"Dataset without an end as `{data}`"
    with raises(ValueError, key, received=received, remedy=f"`{steps}`"):
        _check(method, **{data: endless})
    _check(method, **{data: endless, steps: 3})


@pytest.mark.parametrize("steps", [None, 0])
def test_no_steps_is_no_limit(steps: int | None) -> None:
    """Keras does the same."""
    with pytest.raises(ConfigError):
        _check("fit", x=ENDLESS, steps_per_epoch=steps)
    _check("fit", x=ENDLESS, steps_per_epoch=-1)


def test_what_has_an_end_or_none_that_is_known() -> None:
    x, y = np.ones([8, 4]), np.ones([8, 1])
    _check("fit", x=x, y=y, validation_data=(x, y))
    _check("fit", x=FINITE, validation_data=FINITE)
    _check("fit", x=FINITE.take(2).repeat(3), validation_data=None)
    _check("fit", x=ENDLESS.filter(lambda x, y: True))  # which tf.data does not know of
    _check("fit", x=(batch for batch in [(x, y)]))
    _check("train_on_batch", x=x, y=y)


def test_the_data_of_a_validation_were_looked_at_before() -> None:
    _check("evaluate", x=ENDLESS, kwargs={"_use_cached_eval_dataset": True})


def test_a_limit_of_keras_is_one() -> None:
    keras.config.set_max_steps_per_epoch(2)
    try:
        _check("fit", x=ENDLESS)
    finally:
        keras.config.set_max_steps_per_epoch(None)
