"""Synchronous training beside a slow worker: a backup worker keeps the pace of the others.

tfps run --workers 3 --ps 1 examples/backup_worker.py

One worker takes 100 ms longer for each batch. A plain round waits for it; with `backup_workers=1` a
round is the mean of the first two gradients, and the third one is dropped and counted.
"""

import time

import keras
import tensorflow as tf
from fashion_mnist import data

import tfps

STEPS, SLOW_MS = 60, 100


def after_a_wait(*batch):
    """One batch, after a wait of TensorFlow's own."""
    endless = tf.data.Dataset.from_tensors(batch).repeat()  # it waits before each element
    specs = endless.element_spec
    slept = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(endless),
        sleep_microseconds=SLOW_MS * 1000,
        output_types=[spec.dtype for spec in specs],
        output_shapes=[spec.shape for spec in specs],
    )
    return tf.data.experimental.from_variant(slept, specs).take(1)


def train(images, consistency):
    strategy = tfps.ParameterServerStrategy(consistency=consistency)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Rescaling(1 / 255),
                keras.layers.Flatten(),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])

    def batches(context):
        pipelines, own = context.num_input_pipelines, context.input_pipeline_id
        one = tf.data.Dataset.from_tensor_slices((images.x_train, images.y_train))
        one = one.shard(pipelines, own).shuffle(1000).repeat().batch(64, drop_remainder=True)
        return one.flat_map(after_a_wait) if own == 0 else one

    model.fit(batches, steps_per_epoch=3, verbose=0)  # compiles the step
    before, began = strategy.stats(), time.monotonic()
    model.fit(batches, steps_per_epoch=STEPS, verbose=0)
    seconds, stats = time.monotonic() - began, strategy.stats()
    rounds = stats.updates_applied - before.updates_applied
    print(f"{consistency}")
    print(f"  {rounds} rounds in {seconds:.1f} s, {stats.gradients_dropped} gradients dropped")
    strategy.close()


def main():
    images = data.load(source="subset")
    train(images, tfps.Synchronous())
    train(images, tfps.Synchronous(backup_workers=1))


if __name__ == "__main__":
    main()
