"""A subclassed model with a `train_step` of its own: label smoothing by hand, two metrics.

tfps run --workers 2 --ps 1 examples/subclassed_model.py
"""

import keras
import tensorflow as tf
from fashion_mnist import data

import tfps


class Classifier(keras.Model):
    """Two dense layers whose training step mixes every label with the other classes."""

    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing
        self.scale = keras.layers.Rescaling(1 / 255)
        self.flatten = keras.layers.Flatten()
        self.hidden = keras.layers.Dense(128, activation="relu")
        self.logits = keras.layers.Dense(10)
        self.loss_tracker = keras.metrics.Mean(name="smoothed_loss")
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    @property
    def metrics(self):
        return [self.loss_tracker, self.accuracy]

    def call(self, images):
        return self.logits(self.hidden(self.flatten(self.scale(images))))

    def train_step(self, batch):
        images, labels = batch
        targets = tf.one_hot(labels, 10) * (1 - self.smoothing) + self.smoothing / 10
        with tf.GradientTape() as tape:
            logits = self(images, training=True)
            losses = keras.losses.categorical_crossentropy(targets, logits, from_logits=True)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.loss_tracker.update_state(losses)
        self.accuracy.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, batch):
        images, labels = batch
        self.accuracy.update_state(labels, self(images, training=False))
        return {"accuracy": self.accuracy.result()}


def main():
    images = data.load(source="subset")
    strategy = tfps.ParameterServerStrategy()
    with strategy.scope():
        model = Classifier(smoothing=0.1)
        model.compile(optimizer=keras.optimizers.Adam(1e-3))
    model.fit(images.x_train, images.y_train, batch_size=64, epochs=3)
    results = model.evaluate(images.x_test, images.y_test, batch_size=512, return_dict=True)
    print(f"test accuracy {results['accuracy']:.3f}")


if __name__ == "__main__":
    main()
