"""An input that has ended takes no memory of workers, whenever Python's collector runs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.graphs import graphs_left_alone_by_the_collector
from tfps.runtime.worker.closure_run import BatchSource

pytestmark = pytest.mark.timeout(600)

X, Y = np.ones((16, 3), "float32"), np.ones((16, 1), "float32")


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)


# Each returns a new input of eight batches.
INPUTS: dict[str, Callable[[], Any]] = {
    "dataset function": lambda: (
        lambda context: dataset().shard(context.num_input_pipelines, context.input_pipeline_id)
    ),
    "dataset": dataset,
    "sharded dataset": lambda: tfps.ShardedDataset(dataset, number=4),
    "generator": lambda: ((X[:2], Y[:2]) for _ in range(8)),
}


def inputs_in_memory() -> int:
    """Return how many iterators of TensorFlow, on any task, and inputs of runs there are."""
    kinds = tf.data.Iterator, BatchSource
    return sum(issubclass(type(each), kinds) for each in gc.get_objects())


@pytest.mark.quick("dataset")
@pytest.mark.parametrize("name", INPUTS)
def test_is_freed_without_the_collector(strategy: tfps.ParameterServerStrategy, name: str) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    with graphs_left_alone_by_the_collector():
        model.fit(INPUTS[name](), verbose=0)
        model.fit(INPUTS[name](), verbose=0)  # the first one lives as long as the trace
        gc.collect()
        gc.disable()
        try:
            before = inputs_in_memory()
            for _ in range(3):
                model.fit(INPUTS[name](), verbose=0)
            assert inputs_in_memory() <= before
        finally:
            gc.enable()
