"""Model parallel: the tables lie on different workers, the layers behind them on the chief.

tfps run --workers 2 --ps 1 examples/strategies/model_parallel_tables.py

Each worker looks up the rows of a batch in its own tables and updates them there; rows and their
gradients travel, and no table does. One batch is under way at a time.
"""

import keras
import tensorflow as tf
from reference_job import BATCH_SIZE, Job, behind_tables, tables

CHIEF = "/job:chief/task:0"


def main():
    job = Job.from_arguments(models=["mixed", "large"])
    data = job.data
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver, job_name="chief")

    # Each place has weights of its own, and an optimizer beside them.
    keras.utils.set_random_seed(job.seed)
    places, weights = [], {}
    all_tables = tables(keras, job.rows)
    for number, table in enumerate(all_tables):
        places.append(f"/job:worker/task:{number % job.workers}")
        with tf.device(places[-1]):
            table.build()
        weights.setdefault(places[-1], []).extend(table.trainable_variables)
    with tf.device(CHIEF):
        behind = behind_tables(keras, data.classes)
    weights[CHIEF] = behind.trainable_variables
    optimizers = {}
    for place, own in weights.items():
        with tf.device(place):
            optimizers[place] = job.optimizer(keras)
            optimizers[place].build(own)
    loss_function = job.loss(keras)

    @tf.function
    def step(ids, y):
        rows = []
        for column, (place, table) in enumerate(zip(places, all_tables, strict=True)):
            with tf.device(place):
                rows.append(table(ids[:, column]))
        with tf.device(CHIEF):
            loss = loss_function(y, behind(tf.concat(rows, 1), training=True))
        flat = [variable.value for own in weights.values() for variable in own]
        # A gradient is taken where the operation ran: `tf.gradients` says so, a tape does not.
        gradients = iter(tf.gradients(loss, flat))
        for place, own in weights.items():
            with tf.device(place):
                optimizers[place].apply([next(gradients) for _ in own])
        return loss

    batches = tf.data.Dataset.from_tensor_slices((data.x_train, data.y_train))
    batches = batches.shuffle(len(data.x_train)).batch(BATCH_SIZE)
    for _ in range(job.epochs):
        job.begin()
        for ids, y in batches:
            loss = step(ids, y)
        float(loss)  # the last step has been taken
        job.end(keras, lambda: [w for part in [*all_tables, behind] for w in part.get_weights()])
    job.report()


if __name__ == "__main__":
    main()
