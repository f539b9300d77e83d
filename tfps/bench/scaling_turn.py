"""What the chief of one turn of `tfps bench scaling` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfps.bench.usage import EpochClock
from tfps.bench.workload import MODELS, Images


@dataclass(frozen=True)
class Order:
    """What a chief process is to measure.

    Args:
        steps: of one epoch, of all workers together.
        epochs: measured ones; a warm-up epoch precedes them.
        sleep_ms: of each step.
        batch_size: examples in one worker's step.
        images_path: the data, an .npz file.
        groups: the cluster's process numbers by role.
    """

    steps: int
    epochs: int
    sleep_ms: float
    batch_size: int
    images_path: str
    groups: Mapping[str, Sequence[int]]


def measure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Train as ordered; answers the samples and which way the steps took."""
    import keras

    import tfps

    order = Order(**fields)
    strategy = tfps.ParameterServerStrategy()
    with strategy.scope():
        model = MODELS["mlp"].build(keras)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    every = [number for numbers in order.groups.values() for number in numbers]
    clock = EpochClock(every, order.groups)

    class Measure(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            clock.begin()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            clock.end(order.steps)

    images = Images.load(Path(order.images_path), batch_size=order.batch_size)
    model.fit(
        _slow(images, order.sleep_ms),
        epochs=1 + order.epochs,
        steps_per_epoch=order.steps,
        verbose=0,
        callbacks=[Measure()],
    )
    stats = strategy.stats()
    samples = [asdict(sample) for sample in clock.samples[1:]]  # the first one traces
    details = {"fallback_steps": stats.fallback_steps, "carriers": stats.carriers}
    return {"samples": samples, "details": details}


def _slow(images: Images, sleep_ms: float) -> Any:
    """A dataset function whose every batch takes a while without using a processor.

    The sleep is one of TensorFlow's own operations, at the end of the pipeline with nothing to
    fetch ahead: it comes after one step and before the next, on a thread of the worker that runs
    no Python.
    """
    fast = images.dataset_function()

    def dataset(context: Any) -> Any:
        import tensorflow as tf

        batches = fast(context)
        types = tf.nest.map_structure(lambda spec: spec.dtype, batches.element_spec)
        shapes = tf.nest.map_structure(lambda spec: spec.shape, batches.element_spec)
        variant = tf.raw_ops.SleepDataset(
            input_dataset=tf.data.experimental.to_variant(batches),
            sleep_microseconds=tf.constant(int(1e3 * sleep_ms), tf.int64),
            output_types=tf.nest.flatten(types),
            output_shapes=tf.nest.flatten(shapes),
        )
        return tf.data.experimental.from_variant(variant, batches.element_spec)

    return dataset
