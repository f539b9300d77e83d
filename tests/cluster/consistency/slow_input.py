"""A dataset function whose worker 1 is slow with each batch, and begins after worker 0."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

SLOW_S = 0.02


def slow_input(steps: int, folder: Path) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    """Return a function that makes `steps` batches for each worker, slowly for worker 1.

    On a busy machine worker 0 may come when worker 1 would have ended already. So worker 1 begins
    when worker 0 has drawn its first batch.

    Args:
        steps: of each worker.
        folder: where worker 0 says that it has begun.
    """
    begun = folder / "begun"

    def say_so(number: tf.Tensor) -> tf.Tensor:
        begun.touch()
        return number

    def pause(number: tf.Tensor) -> tf.Tensor:
        while not begun.exists():
            time.sleep(SLOW_S)
        time.sleep(SLOW_S)
        return number

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        batches = tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.ones([4, 1]))).repeat(steps)
        called = {0: say_so, 1: pause}.get(context.input_pipeline_id)
        if called is not None:
            calls = tf.data.Dataset.range(steps).map(
                lambda number: tf.py_function(called, [number], tf.int64)
            )
            batches = tf.data.Dataset.zip((batches, calls)).map(lambda batch, _: batch)
        return batches.prefetch(0)

    return dataset
