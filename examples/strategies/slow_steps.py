"""A layer whose every step waits 50 ms, and is noted in a folder: a model that takes long.

It uses no processor meanwhile, so that workers of one machine behave like machines of their own. A
file `slow-PROCESS` in the folder makes the steps of that process five times as long. Each step
leaves an empty file `step-PROCESS-MICROSECONDS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

STEP_US, SLOW_FACTOR = 50_000, 5


def slow_layer(keras: Any, folder: Path) -> Any:
    """The layer, which gives on what it is given."""
    return keras.layers.Lambda(lambda given: _given_late(given, str(folder)), name="slow")


def _given_late(given: Any, folder: str) -> Any:
    # All of it is operations, which run in the process that takes the step, be it one without
    # Python. The graph is the same on all workers: which one it is only the system knows.
    process = tf.strings.split(_only(tf.data.TextLineDataset("/proc/self/stat")), " ")[0]
    marks = tf.io.matching_files(tf.strings.join([folder, "/slow-", process]))
    wait_us = tf.where(tf.size(marks) > 0, SLOW_FACTOR * STEP_US, STEP_US)
    with tf.control_dependencies([_only(_slept(tf.cast(wait_us, tf.int64)))]):
        now_us = tf.strings.as_string(tf.cast(1e6 * tf.timestamp(), tf.int64))
        name = tf.strings.join([folder, "/step-", process, "-", now_us])
        note = tf.io.write_file(name, "")
    with tf.control_dependencies([note]):
        return tf.identity(given)


def _only(elements: Any) -> Any:
    return elements.take(1).get_single_element()


def _slept(wait_us: Any) -> Any:
    numbers = tf.data.Dataset.from_tensors(0).repeat()
    slow = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(numbers),
        sleep_microseconds=wait_us,
        output_types=[tf.int32],
        output_shapes=[[]],
    )
    return tf.data.experimental.from_variant(slow, numbers.element_spec)
