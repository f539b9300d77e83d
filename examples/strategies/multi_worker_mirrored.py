"""`MultiWorkerMirroredStrategy`: a copy of the model on each worker, all-reduced between them.

python examples/strategies/all_workers.py --workers 2 examples/strategies/multi_worker_mirrored.py

It trains with tf_keras. Keras 3.15 builds a model in `fit` from a batch that it reduces over the
workers, and TensorFlow 2.21 cannot reduce the pair of inputs and labels between machines:
"unsupported type PerReplica". A loop of one's own trains with Keras 3.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf
import tf_keras as keras
from reference_job import BATCH_SIZE, Job


def main():
    job = Job.from_arguments()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # first of all: it starts the server
    data = job.data
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
    if strategy.cluster_resolver.task_id == 0:
        job.report()


if __name__ == "__main__":
    main()
