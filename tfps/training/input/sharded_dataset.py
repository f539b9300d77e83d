"""Describe how many shards a dataset function makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tfps.consistency.warm_up import is_count
from tfps.errors import refuse


@dataclass(frozen=True)
class ShardedDataset:
    """A dataset function whose data come in shards, so that each example is used exactly once.

    `fit`, `evaluate` and ``validation_data`` take it where they take a dataset function. The
    function is called once per shard, with a `tf.distribute.InputContext` of as many pipelines;
    what a function without a context makes is cut into shards, batch by batch. A worker leases a
    shard and goes through it. When it dies, another worker goes on with the first batch that was
    not applied: it makes the shard's dataset again and skips what was done. So a shard's batches
    must come in one order; shuffles without a seed get one, another one in each epoch, and
    repetitions within a shard have one order.

    Each step asks the chief which batch it takes, a short request. More shards than workers share
    the load evenly where workers differ in speed, and less has to be skipped when one dies. Each is
    traced once, and arrays in the function are copied for each; with fewer than workers some
    workers have nothing to do. `evaluate` takes a plain dataset function in as many shards as there
    are workers.

    Args:
        function: takes a `tf.distribute.InputContext`, or nothing; returns a finite
            `tf.data.Dataset` of batches.
        number: the number of shards, 1 or more; several times the number of workers is good.

    Raises:
        ConfigError: ``function`` is not callable, or ``number`` is not a whole number from 1.

    Example:

    >>> def make(context):
    ...     files = tf.data.Dataset.list_files("train-*.tfrecord", shuffle=False)
    ...     files = files.shard(context.num_input_pipelines, context.input_pipeline_id)
    ...     return tf.data.TFRecordDataset(files).map(parse).shuffle(10_000).batch(64)
    >>> shards = ShardedDataset(make, number=20)
    >>> shards.number
    20
    """

    function: Callable[..., Any]
    _: KW_ONLY
    number: int

    def __post_init__(self) -> None:
        problems = []
        if not callable(getattr(self.function, "dataset_fn", self.function)):
            problems.append(
                f"function: received {type(self.function).__name__}, expected a callable that "
                "returns a tf.data.Dataset; pass arrays and datasets to `fit` directly, which "
                "uses each example once"
            )
        if not is_count(self.number) or self.number < 1:
            problems.append(
                f"number: received {self.number!r}, expected a whole number of shards from 1; "
                "several times the number of workers is best"
            )
        refuse(problems, source="ShardedDataset")
