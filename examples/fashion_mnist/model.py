"""The two models of the reference job: plain Keras 3, nothing about parameter servers.

Both take the images as they are stored (28 x 28 bytes, 0 to 255) and return ten logits, so a saved
model needs no code of its own to be loaded and used:

>>> model = build("mlp", hidden_units=[128], dropout=0.0)
>>> model.count_params()
101770
"""

from __future__ import annotations

from collections.abc import Sequence

import keras

TITLE = "Fashion-MNIST"
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
IMAGE_SHAPE = (28, 28, 1)


def cnn(
    *, filters: Sequence[int], kernel_size: int, dense_units: int, dropout: float
) -> keras.Model:
    """Return a small convolutional network that halves the image with every convolution.

    Strides of 2 take the place of pooling: on a CPU that halves the time of a step.

    Args:
        filters: the number of filters of each convolution.
        kernel_size: the side of the square kernels, in pixels.
        dense_units: the width of the hidden dense layer.
        dropout: the fraction of its outputs that is dropped while training.
    """
    layers = [keras.Input(IMAGE_SHAPE, dtype="uint8"), keras.layers.Rescaling(1 / 255)]
    for count in filters:
        layers.append(
            keras.layers.Conv2D(count, kernel_size, strides=2, padding="same", activation="relu")
        )
    layers.append(keras.layers.Flatten())
    layers.append(keras.layers.Dense(dense_units, activation="relu"))
    layers.append(keras.layers.Dropout(dropout))
    layers.append(keras.layers.Dense(len(CLASSES)))
    return keras.Sequential(layers, name="fashion_mnist_cnn")


def mlp(*, hidden_units: Sequence[int], dropout: float) -> keras.Model:
    """Return a multi-layer perceptron, four times as fast as `cnn` and two points less accurate.

    Args:
        hidden_units: the width of each hidden layer.
        dropout: the fraction of every hidden layer's outputs that is dropped while training.
    """
    layers = [keras.Input(IMAGE_SHAPE, dtype="uint8"), keras.layers.Rescaling(1 / 255)]
    layers.append(keras.layers.Flatten())
    for units in hidden_units:
        layers.append(keras.layers.Dense(units, activation="relu"))
        layers.append(keras.layers.Dropout(dropout))
    layers.append(keras.layers.Dense(len(CLASSES)))
    return keras.Sequential(layers, name="fashion_mnist_mlp")


MODELS = {"cnn": cnn, "mlp": mlp}


def build(name: str, **sizes: object) -> keras.Model:
    """Build the model that a job file names, with the sizes of its table ``[model.<name>]``."""
    return MODELS[name](**sizes)
