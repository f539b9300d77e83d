"""Model parallel: the layers lie on different tasks, and a batch goes through all of them.

tfps run --workers 2 --ps 1 examples/strategies/model_parallel_layers.py

One batch is under way at a time, so that one task computes while the others wait. Gradients are
taken where the layers are, and only activations and their gradients travel.
"""

import keras
import tensorflow as tf
from reference_job import BATCH_SIZE, Job, dense_layers


def main():
    job = Job.from_arguments(models=["dense"])  # whose layers lie in a row
    data = job.data
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver, job_name="chief")
    tasks = [f"/job:worker/task:{k}" for k in range(job.workers)]

    # A stretch of the layers on each task, with an optimizer of its own beside it.
    keras.utils.set_random_seed(job.seed)
    layers = [*job.first_layers(keras), *dense_layers(keras, data.classes)]
    cuts = [round(k * len(layers) / job.workers) for k in range(job.workers + 1)]
    shape, stages = data.x_train.shape[1:], []
    for k, task in enumerate(tasks):
        with tf.device(task):
            stage = keras.Sequential([keras.Input(shape), *layers[cuts[k] : cuts[k + 1]]])
            optimizer = job.optimizer(keras)
            optimizer.build(stage.trainable_variables)
        shape = stage.output_shape[1:]
        print(f"{stage.count_params():,} parameters on {task}")
        stages.append((task, stage, optimizer))
    loss_function = job.loss(keras)

    @tf.function
    def step(x, y):
        outputs = x
        for task, stage, _ in stages:
            with tf.device(task):
                outputs = stage(outputs, training=True)
        with tf.device(tasks[-1]):
            loss = loss_function(y, outputs)
        weights = [v.value for _, stage, _ in stages for v in stage.trainable_variables]
        # A gradient is taken where the operation ran: `tf.gradients` says so, a tape does not.
        found = iter(tf.gradients(loss, weights))
        for task, stage, optimizer in stages:
            with tf.device(task):
                optimizer.apply([next(found) for _ in stage.trainable_variables])
        return loss

    batches = tf.data.Dataset.from_tensor_slices((data.x_train, data.y_train))
    batches = batches.shuffle(len(data.x_train)).batch(BATCH_SIZE)
    for _ in range(job.epochs):
        job.begin()
        for x, y in batches:
            loss = step(x, y)
        float(loss)  # the last step has been taken
        job.end(keras, lambda: [weight for _, stage, _ in stages for weight in stage.get_weights()])
    job.report()


if __name__ == "__main__":
    main()
