"""`MirroredStrategy`: copies of the model on the logical devices of one machine, all-reduced.

python examples/strategies/mirrored.py --workers 2

Each device takes its part of a batch, and all wait for the mean of the gradients. A machine with
accelerators needs no logical devices: the strategy without arguments takes them all.
"""

import keras
import tensorflow as tf
from reference_job import BATCH_SIZE, Job


def main():
    job = Job.from_arguments()
    data = job.data
    (processor,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(job.workers)]
    tf.config.set_logical_device_configuration(processor, parts)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(job.workers)])
    with strategy.scope():
        model = job.build(keras)
        model.compile(job.optimizer(keras), job.loss(keras), metrics=["accuracy"])
    model.fit(
        data.x_train,
        data.y_train,
        batch_size=BATCH_SIZE * strategy.num_replicas_in_sync,
        epochs=job.epochs,
        verbose=0,
        callbacks=[job.callback(keras)],
    )
    job.report()


if __name__ == "__main__":
    main()
