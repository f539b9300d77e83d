"""Input without an end, for which the caller has to say how many batches make an epoch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_private import max_steps_per_epoch, unpack_x_y_sample_weight
from tfps.errors import ConfigError
from tfps.training.input.dataset_function import (
    dataset_of_pipeline,
    is_dataset_function,
    refuse_data_service,
)
from tfps.training.input.epoch_iterator import get_original_input
from tfps.training.input.sharded_dataset import ShardedDataset

if TYPE_CHECKING:
    from tfps.training.fit_strategy import FitStrategy


@dataclass(frozen=True)
class Limit:
    """Names the argument that limits how much of a data argument is used.

    Args:
        data_argument: the argument with the data.
        steps_argument: the argument that limits them.
        endless_part: what does not end without it.
        meaning: of the limit.
        is_later: the data are first used after steps of training.
    """

    data_argument: str
    steps_argument: str
    endless_part: str
    meaning: str
    is_later: bool = False


LIMITS = {
    "fit": (
        Limit(
            "x",
            "steps_per_epoch",
            "its first epoch",
            "the number of batches of an epoch, or -1 to train until a callback stops it",
        ),
        Limit(
            "validation_data",
            "validation_steps",
            "its first validation",
            "a number of batches",
            is_later=True,
        ),
    ),
    "evaluate": (Limit("x", "steps", "it", "a number of batches"),),
    "predict": (Limit("x", "steps", "it", "a number of batches"),),
}


def refuse_endless_input(
    method: str, arguments: Mapping[str, Any], *, strategy: FitStrategy
) -> None:
    """Raise an error if a call is known to never end.

    Args:
        method: of a model.
        arguments: that it was called with.
        strategy: whose worker is asked about the dataset of a dataset function.

    Raises:
        ConfigError: the data are endless, and nothing limits them; a `ValueError`, as TensorFlow's.
        UnsupportedError: a validation would read from a `tf.data` service.
    """
    is_validation = arguments.get("kwargs", {}).get("_use_cached_eval_dataset")
    if max_steps_per_epoch() or is_validation:  # whose data were looked at when `fit` began
        return
    for limit in LIMITS.get(method, ()):
        data, is_limited = map(arguments.get, (limit.data_argument, limit.steps_argument))
        x = get_original_input(unpack_x_y_sample_weight(data)[0])
        # The function of a validation is looked at now, and not after an epoch of training.
        if data is None or (is_limited and not (limit.is_later and is_dataset_function(x))):
            continue
        kind = _kind_of_endless(x, strategy, is_later=limit.is_later)
        if kind is not None and not is_limited:
            raise ConfigError(
                f"{method} received {kind} without an end as `{limit.data_argument}`, so "
                f"{limit.endless_part} would never end. When passing an infinitely "
                f"repeating dataset, please specify a `{limit.steps_argument}` value: "
                f"{limit.meaning}; or leave out repeat()."
            )


def _kind_of_endless(x: Any, strategy: FitStrategy, *, is_later: bool) -> str | None:
    """Return the kind of an input that is endless for sure; else None."""
    if isinstance(x, tf.data.Dataset):
        return "a tf.data.Dataset" if _is_infinite(x.cardinality()) else None
    if isinstance(x, keras.utils.PyDataset):
        return "a PyDataset" if x.num_batches is None else None
    if is_dataset_function(x):
        shards = (
            x
            if isinstance(x, ShardedDataset)
            else ShardedDataset(x, number=strategy.runtime.workers)
        )
        return "a dataset function" if _is_endless(shards, strategy, is_later) else None
    return None


def _is_endless(shards: ShardedDataset, strategy: FitStrategy, is_later: bool) -> bool:
    """Ask a worker, where the function's files are, whether its dataset is endless."""
    strategy.run_state.guard.wait_for_silent_workers()
    alive = private.get_alive_workers(strategy.coordinator)
    worker = alive.index(True) if any(alive) else 0
    make = functools.partial(
        dataset_of_pipeline,
        getattr(shards.function, "dataset_fn", shards.function),
        index=min(worker, shards.number - 1),
        pipelines=shards.number,
        strategy=strategy,
    )
    cardinality = tf.function(lambda: make().cardinality(), autograph=False)
    concrete = cardinality.get_concrete_function()
    if is_later:
        refuse_data_service(concrete.graph)
    try:
        with tf.device(strategy.runtime.topology.worker(worker)):
            return _is_infinite(concrete())
    except tf.errors.OpError:
        return False  # not known; the error comes again when the workers make their datasets


def _is_infinite(cardinality: tf.Tensor) -> bool:
    return int(cardinality) == tf.data.INFINITE_CARDINALITY
