"""What the chief of one turn of `tfps bench scaling` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfps.bench.usage import EpochClock
from tfps.bench.workload import MODELS


@dataclass(frozen=True)
class ScalingOrder:
    """What a chief process is to measure.

    Args:
        steps: of one epoch, of all workers together.
        epochs: measured ones; a warm-up epoch precedes them.
        sleep_ms: of each step.
        batch_size: examples in one worker's step.
        groups: the cluster's process numbers by role.
    """

    steps: int
    epochs: int
    sleep_ms: float
    batch_size: int
    groups: Mapping[str, Sequence[int]]


def measure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Train as ordered; answers the samples and which way the steps took."""
    import keras

    import tfps

    order = ScalingOrder(**fields)
    strategy = tfps.ParameterServerStrategy()
    with strategy.scope():
        model = MODELS["mlp"].build(keras)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    every = [number for numbers in order.groups.values() for number in numbers]
    clock = EpochClock(every, order.groups)

    class ScalingMeasure(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            clock.begin()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            clock.end(order.steps)

    model.fit(
        _slow(order),
        epochs=1 + order.epochs,
        steps_per_epoch=order.steps,
        verbose=0,
        callbacks=[ScalingMeasure()],
    )
    stats = strategy.stats()
    samples = [asdict(sample) for sample in clock.samples[1:]]  # the first one traces
    details = {"fallback_steps": stats.fallback_steps, "carriers": stats.carriers}
    return {"samples": samples, "details": details}


def _slow(order: ScalingOrder) -> Any:
    """A dataset function whose every batch takes a while without using a processor.

    The sleep is one of TensorFlow's own operations, at the end of the pipeline with nothing to
    fetch ahead: it comes after one step and before the next, on a thread of the worker that runs
    no Python. The images are blank: what is in a dataset function's graph goes to every worker
    once per worker, and real images would fill the machine's memory.
    """

    def dataset() -> Any:
        import tensorflow as tf

        images = tf.zeros([order.batch_size, 28, 28])
        labels = tf.zeros([order.batch_size], tf.int32)
        batches = tf.data.Dataset.from_tensors((images, labels)).repeat()
        variant = tf.raw_ops.SleepDataset(
            input_dataset=tf.data.experimental.to_variant(batches),
            sleep_microseconds=tf.constant(int(1e3 * order.sleep_ms), tf.int64),
            output_types=[tf.float32, tf.int32],
            output_shapes=[images.shape, labels.shape],
        )
        slow = tf.data.experimental.from_variant(variant, batches.element_spec)
        options = tf.data.Options()
        # TensorFlow adds a prefetch by itself, and the sleep would pass beside the step.
        options.experimental_optimization.inject_prefetch = False
        return slow.with_options(options)

    return dataset
