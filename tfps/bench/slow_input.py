"""A dataset function whose batches take a stated while, without using a processor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfps.bench.delay import Delay

PATTERN_STEPS = 4096  # drawn ahead; a worker that goes on longer meets the same ones again
# Of the images as numbers from 0 to 1; centred ones are learnt in half the steps.
MEAN, DEVIATION = 0.286, 0.353


def centred(pixels: Any) -> Any:
    """What a model sees of images as bytes, arrays and tensors alike."""
    return (pixels / np.float32(255) - np.float32(MEAN)) / np.float32(DEVIATION)


@dataclass(frozen=True)
class SlowInput:
    """Endless shuffled batches, each of which comes as late as a `Delay` says.

    The wait is one of TensorFlow's own operations, at the end of the pipeline with nothing to fetch
    ahead: it comes after one step and before the next, on a thread of the worker that runs no
    Python. It lies between the moment in which a worker got its parameters and its next gradient,
    as computation would, so whoever waits for a worker waits for it.

    Args:
        pixels_path: a file that `LabelledImages.write_pixels` wrote; every worker reads it. In the
            graph of a dataset function the images would go to every worker for every training.
        labels: of its images, or of as many of the first ones as are to be used.
        batch_size: examples in one worker's step.
        delay: how long the steps take; None: nothing waits, and batches are fetched ahead.
        seed: of the order of the images and of the delays.
    """

    pixels_path: str
    labels: np.ndarray
    batch_size: int
    delay: Delay | None
    seed: int

    def function(self) -> Callable[[Any], Any]:
        """The function for `fit`, which each worker calls with its context."""

        def dataset(context: Any) -> Any:
            return self.of_worker(context.input_pipeline_id)

        return dataset

    def of_worker(self, worker: int) -> Any:
        """The pipeline of one worker."""
        import tensorflow as tf

        if self.delay is None:
            return self._batches(worker).prefetch(2)
        durations_s = self.delay.durations_s(seed=self.seed, worker=worker, steps=PATTERN_STEPS)
        waits_us = tf.constant((1e6 * durations_s).astype(np.int64))
        waits = tf.data.Dataset.from_tensor_slices(waits_us).repeat()
        batches = self._batches(worker)
        slow = tf.data.Dataset.zip((batches, waits)).flat_map(_after_wait)
        options = tf.data.Options()
        # TensorFlow would fetch ahead by itself, and the wait would pass beside the step.
        options.experimental_optimization.apply_default_optimizations = False
        options.autotune.enabled = False
        return slow.with_options(options)

    def _batches(self, worker: int) -> Any:
        import tensorflow as tf

        pixels = tf.io.decode_raw(tf.io.read_file(self.pixels_path), tf.uint8)
        images, labels = tf.reshape(pixels, [-1, 28, 28]), tf.constant(self.labels)
        batches = len(self.labels) // self.batch_size

        def permuted(visit: Any) -> Any:
            order = tf.random.experimental.stateless_shuffle(
                tf.range(len(self.labels)), seed=tf.stack([self.seed * 1000 + worker, visit])
            )
            used = order[: batches * self.batch_size]
            return tf.data.Dataset.from_tensor_slices(tf.reshape(used, [batches, -1]))

        def gather(positions: Any) -> Any:
            chosen = tf.cast(tf.gather(images, positions), tf.float32)
            return centred(chosen), tf.cast(tf.gather(labels, positions), tf.int32)

        visits = tf.data.Dataset.range(2**31 - 1, output_type=tf.int32)
        return visits.flat_map(permuted).map(gather)


def slept(elements: Any, wait_us: Any) -> Any:
    """A dataset of the same elements, before each of which one of TensorFlow's operations sleeps.

    It runs on a thread of the worker, with no Python and no processor.
    """
    import tensorflow as tf

    slow = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(elements),
        sleep_microseconds=wait_us,
        output_types=[spec.dtype for spec in elements.element_spec],
        output_shapes=[spec.shape for spec in elements.element_spec],
    )
    return tf.data.experimental.from_variant(slow, elements.element_spec)


def _after_wait(batch: Any, wait_us: Any) -> Any:
    import tensorflow as tf

    # It sleeps before it looks whether there is another element: with one there always is.
    return slept(tf.data.Dataset.from_tensors(batch).repeat(), wait_us).take(1)
