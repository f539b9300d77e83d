"""A dataset function whose worker 1 takes its time for each batch."""

from __future__ import annotations

import time
from collections.abc import Callable

import tensorflow as tf

SLOW_S = 0.02


def _pause(number: tf.Tensor) -> tf.Tensor:
    time.sleep(SLOW_S)
    return number


def slow_input(steps: int) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    """So many batches for each worker."""

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        batches = tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.ones([4, 1]))).repeat(steps)
        if context.input_pipeline_id == 1:
            wait = tf.data.Dataset.range(steps).map(lambda i: tf.py_function(_pause, [i], tf.int64))
            batches = tf.data.Dataset.zip((batches, wait)).map(lambda batch, _: batch)
        return batches.prefetch(0)

    return dataset
