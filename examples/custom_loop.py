"""A training loop of your own: the three steps of TensorFlow's parameter-server tutorial.

tfps run --workers 2 --ps 1 examples/custom_loop.py
"""

import keras
import numpy as np
import tensorflow as tf
from fashion_mnist import data

import tfps

EPOCHS = 3
STEPS_PER_EPOCH = 150
STEPS_PER_EXECUTION = 25  # one scheduled function: fewer messages between coordinator and workers
BATCH_SIZE = 64


def main():
    images = data.load(source="subset")
    strategy = tfps.ParameterServerStrategy()
    coordinator = tfps.ClusterCoordinator(strategy)
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
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    # 1. Define the step. It runs on a worker; the optimizer's update runs on the servers.
    def replica_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train_steps(iterator):
        total = 0.0
        for _ in tf.range(STEPS_PER_EXECUTION):
            total += strategy.run(replica_step, args=next(iterator))
        return total / STEPS_PER_EXECUTION

    def make_dataset():
        examples = tf.data.Dataset.from_tensor_slices((images.x_train, images.y_train))
        return examples.shuffle(10_000).repeat().batch(BATCH_SIZE)

    # 2. The loop: the coordinator schedules, any free worker takes what is next.
    iterator = iter(coordinator.create_per_worker_dataset(make_dataset))
    for epoch in range(EPOCHS):
        executions = range(STEPS_PER_EPOCH // STEPS_PER_EXECUTION)
        losses = [coordinator.schedule(train_steps, args=(iterator,)) for _ in executions]
        coordinator.join()
        print(f"epoch {epoch + 1}: loss {np.mean(coordinator.fetch(losses)):.3f}")

    # 3. The evaluation, on the coordinator with the weights of the servers.
    logits = model(images.x_test, training=False)
    accuracy = np.mean(np.argmax(logits, axis=1) == images.y_test)
    print(f"test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
