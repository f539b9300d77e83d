"""TensorFlow's own `ParameterServerStrategy`, whose `fit` schedules over its ClusterCoordinator.

tfps run --workers 2 --ps 1 examples/strategies/tensorflow_parameter_servers.py

It trains with tf_keras: the `fit` of Keras 3 has no coordinator. The number of steps is to be said.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf
import tf_keras as keras
from reference_job import BATCH_SIZE, Job


def main():
    job = Job.from_arguments()
    data = job.data
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = job.build(keras)
        model.compile(job.optimizer(keras), job.loss(keras), metrics=["accuracy"])
    model.fit(
        data.x_train,
        data.y_train,
        batch_size=BATCH_SIZE,
        steps_per_epoch=job.examples // BATCH_SIZE,
        epochs=job.epochs,
        verbose=0,
        callbacks=[job.callback(keras)],
    )
    job.report()


if __name__ == "__main__":
    main()
