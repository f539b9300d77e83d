"""What is trained: some models and one set of images, the same for every row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# An epoch of Fashion-MNIST's 60,000 images has 938 steps; this is the next number below that is
# divisible by the longest execution and by two workers. As float32 the images are 181 MB.
EPOCH_STEPS = 900


@dataclass(frozen=True)
class Model:
    """A model of the benchmark.

    Args:
        title: what tables and plots call it.
        layers: widths of the dense layers with ReLU, before the output of 10.
        filters: of the convolutions before them, each of which halves the image.
        dropout: the share of the last layer's outputs that is dropped.
    """

    title: str
    layers: tuple[int, ...]
    filters: tuple[int, ...] = ()
    dropout: float = 0.0

    def build(self, keras: Any) -> Any:
        """Build it, not compiled, with `keras` or `tf_keras`."""
        layers = keras.layers
        halved = {"strides": 2, "padding": "same", "activation": "relu"}
        outputs = inputs = keras.Input((28, 28))
        if self.filters:
            outputs = layers.Reshape((28, 28, 1))(outputs)
        for filters in self.filters:
            outputs = layers.Conv2D(filters, 3, **halved)(outputs)
        outputs = layers.Flatten()(outputs)
        for width in self.layers:
            outputs = layers.Dense(width, activation="relu")(outputs)
        if self.dropout:
            outputs = layers.Dropout(self.dropout)(outputs)
        return keras.Model(inputs, layers.Dense(10)(outputs))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the variables that an optimizer updates, in a model without convolutions."""
        widths = (28 * 28, *self.layers, 10)
        return [shape for pair in itertools.pairwise(widths) for shape in (pair, pair[1:])]

    @property
    def size_bytes(self) -> int:
        """Of all its variables, float32."""
        return sum(4 * math.prod(shape) for shape in self.shapes)


MODELS = {
    "mlp": Model("MLP 784-128-10", (128,)),
    "layers": Model("60 variables", (64,) * 29),
    "cnn": Model("CNN of the reference job", (64,), filters=(32, 64), dropout=0.25),
    "large": Model("25 million parameters", (4608, 4608)),
}


@dataclass(frozen=True)
class Images:
    """Fashion-MNIST's subset, repeated to the size of the whole set.

    Args:
        images: float32 of shape (number, 28, 28), from 0 to 1.
        labels: int32.
        batch_size: examples in one worker's step.
    """

    images: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]
    batch_size: int

    @classmethod
    def load(cls, path: Path, *, batch_size: int) -> Images:
        """Read what `tfps.bench.images` wrote."""
        with np.load(path) as arrays:
            images = (arrays["images"] / 255.0).astype("float32")
            return cls(images, arrays["labels"].astype("int32"), batch_size)

    def arrays(self, steps: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The examples of one epoch of so many steps."""
        positions = np.arange(steps * self.batch_size) % len(self.images)
        return self.images[positions], self.labels[positions]

    def dataset_function(self) -> Callable[..., Any]:
        """Return a function that makes an endless dataset; it runs on each worker.

        Keras feeds arrays the same way: a permutation per epoch, and one gather per batch.
        """
        batches = len(self.images) // self.batch_size

        def dataset(context: Any = None) -> Any:
            del context  # endless and shuffled: the workers need no parts of their own
            import tensorflow as tf

            arrays = tf.constant(self.images), tf.constant(self.labels)

            def permuted(_: Any) -> Any:
                order = tf.random.shuffle(tf.range(len(self.labels)))[: batches * self.batch_size]
                return tf.data.Dataset.from_tensor_slices(tf.reshape(order, [batches, -1]))

            def gather(positions: Any) -> Any:
                return tuple(tf.gather(array, positions) for array in arrays)

            epochs = tf.data.Dataset.range(1).repeat().flat_map(permuted)
            return epochs.map(gather, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)

        return dataset


def split(steps: int) -> tuple[int, int]:
    """Divide a stretch of steps into Keras's epochs: how many, and the steps of each.

    Example:

    >>> split(400), split(2600)
    ((1, 400), (3, 900))
    """
    return (1, steps) if steps < EPOCH_STEPS else (math.ceil(steps / EPOCH_STEPS), EPOCH_STEPS)
