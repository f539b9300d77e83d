"""Optimizers for stale gradients against plain ones, where four workers make gradients late.

tfps run --workers 4 --ps 1 examples/staleness_aware.py

With four workers a gradient lacks about three updates. Which optimizer helps depends on the model
and its learning rate: `python -m benchmarks staleness` compares them with a search and with
intervals.
"""

import keras
from fashion_mnist import data

import tfps
from tfps.optimizers import DANA, StalenessAware

EPOCHS = 3
OPTIMIZERS = {
    "plain, with momentum": lambda: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    "a momentum for each worker": lambda: DANA(0.01),
    "plain": lambda: keras.optimizers.SGD(0.1),
    "smaller steps": lambda: StalenessAware(keras.optimizers.SGD(0.1), discount="exponential"),
}


def train(strategy, images, make_optimizer):
    """Train one model from the same weights; return its accuracy and its gradients' staleness."""
    keras.utils.set_random_seed(0)
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
        model.compile(make_optimizer(), loss, metrics=["accuracy"])
    before = strategy.stats().gradient_staleness_updates
    model.fit(images.x_train, images.y_train, batch_size=64, epochs=EPOCHS, verbose=0)
    after = strategy.stats().gradient_staleness_updates
    counts = {lag: count - before.get(lag, 0) for lag, count in after.items()}
    staleness = sum(lag * count for lag, count in counts.items()) / sum(counts.values())
    _, accuracy = model.evaluate(images.x_test, images.y_test, batch_size=512, verbose=0)
    return accuracy, staleness


def main():
    images = data.load(source="subset")
    strategy = tfps.ParameterServerStrategy()
    for name, make_optimizer in OPTIMIZERS.items():
        accuracy, staleness = train(strategy, images, make_optimizer)
        print(f"{name:<27} staleness {staleness:.1f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
