"""A dataset function whose batches take a stated while, without using a processor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

PATTERN_STEPS = 4096  # drawn ahead; a worker that goes on longer meets the same ones again
# Of the images as numbers from 0 to 1; centred ones are learnt in half the steps.
MEAN, DEVIATION = 0.286, 0.353


def centred(pixels: Any) -> Any:
    """Scale bytes of images to mean 0 and deviation 1; works on arrays and tensors."""
    return (pixels / np.float32(255) - np.float32(MEAN)) / np.float32(DEVIATION)


@dataclass(frozen=True)
class Delay:
    """Steps of a stated length, some of which take longer.

    Stragglers come in two kinds: a machine that is slow all the time, and moments in which any of
    them is. Both are drawn ahead from a seed, so that every mode of training meets the same ones.

    Source: Chen et al., "Revisiting Distributed Synchronous SGD", 2016; Ho et al., "More Effective
    Distributed ML via a Stale Synchronous Parallel Parameter Server", NeurIPS 2013.
    """

    step_s: float  # length of a step that nothing slows down
    slow_worker: int | None = None  # the one whose steps all take longer; None: no worker
    slow_factor: float = 1.0  # how many times as long
    transient_share: float = 0.0  # of each worker's steps, which take longer
    transient_factor: float = 1.0
    spread: float = 0.0  # lengths are spread evenly by so much around their own, as a share of it

    def durations_s(self, *, seed: int, worker: int, steps: int) -> np.ndarray:
        """Return the lengths of a worker's first steps; those of more steps begin with the same."""
        # A row per step, so that a step's draws do not depend on how many steps are asked for.
        chance, position = np.random.default_rng([seed, worker]).random([steps, 2]).T
        own = self.slow_factor if worker == self.slow_worker else 1.0
        moment = np.where(chance < self.transient_share, self.transient_factor, 1.0)
        return self.step_s * own * moment * (1 + self.spread * (2 * position - 1))


@dataclass(frozen=True)
class SlowInput:
    """Endless shuffled batches, each of which comes as late as a `Delay` says.

    The wait is one of TensorFlow's own operations, at the end of the pipeline with nothing to fetch
    ahead: it comes after one step and before the next, on a thread of the worker that runs no
    Python. It lies between the moment in which a worker got its parameters and its next gradient,
    as computation would, so what waits for a worker waits for it, too.
    """

    # A file that `LabelledImages.write_pixels` wrote; every worker reads it. In the graph of a
    # dataset function the images would go to every worker for every training.
    pixels_path: str
    labels: np.ndarray  # of its images, or of as many of the first ones as are to be used
    batch_size: int
    delay: Delay | None  # None: nothing waits, and batches are fetched ahead
    seed: int  # of the order of the images and of the delays

    def function(self) -> Callable[[Any], Any]:
        """Return the function for `fit`, which each worker calls with its context."""
        return lambda context: self.of_worker(context.input_pipeline_id)

    def of_worker(self, worker: int) -> Any:
        """Return the pipeline of one worker."""
        import tensorflow as tf

        batches = self._batches(worker)
        if self.delay is None:
            return batches.prefetch(2)
        durations_s = self.delay.durations_s(seed=self.seed, worker=worker, steps=PATTERN_STEPS)
        waits_us = tf.constant((1e6 * durations_s).astype(np.int64))
        waits = tf.data.Dataset.from_tensor_slices(waits_us).repeat()
        # Else the wait would pass beside the step.
        return one_by_one(tf.data.Dataset.zip((batches, waits)).flat_map(_after_wait))

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


def one_by_one(elements: Any) -> Any:
    """Return the dataset with TensorFlow's own fetching ahead turned off."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return elements.with_options(options)


def delay_elements(elements: Any, wait_us: Any) -> Any:
    """Return a dataset that waits in a TensorFlow operation before each element.

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
    return delay_elements(tf.data.Dataset.from_tensors(batch).repeat(), wait_us).take(1)
