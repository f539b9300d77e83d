"""The models that benchmarks train, the same ones for every row."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

# An epoch of Fashion-MNIST's 60,000 images has 938 steps; this is the next number below that is
# divisible by the longest execution and by two workers. As float32 the images are 181 MB.
EPOCH_STEPS = 900
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Model:
    """A model of the benchmarks."""

    title: str
    layers: tuple[int, ...]  # widths of the dense layers with ReLU, before the output of 10
    filters: tuple[int, ...] = ()  # of the convolutions before them; each halves the image
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

    def compiled(self, keras: Any, optimizer: Any, **options: Any) -> Any:
        """Build the model and compile it for labels."""
        model = self.build(keras)
        loss, _ = self.loss_and_accuracy(keras)
        model.compile(optimizer, loss, **options)
        return model

    def loss_and_accuracy(self, keras: Any, **options: Any) -> tuple[Any, Any]:
        """Return the loss and the accuracy for the model's logits; options go to the loss."""
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)
        return loss, keras.metrics.SparseCategoricalAccuracy()

    def optimizer(self, keras: Any) -> Any:
        """Make the optimizer that trains it."""
        return keras.optimizers.Adam(LEARNING_RATE)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the trained variables, in a model without convolutions."""
        widths = (28 * 28, *self.layers, 10)
        return [shape for pair in itertools.pairwise(widths) for shape in (pair, pair[1:])]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all its variables in float32."""
        return sum(4 * math.prod(shape) for shape in self.shapes)


MODELS = {
    "mlp": Model("MLP 784-128-10", (128,)),
    "layers": Model("60 variables", (64,) * 29),
    "cnn": Model("CNN of the reference job", (64,), filters=(32, 64), dropout=0.25),
    "large": Model("25 million parameters", (4608, 4608)),
}


def split(steps: int) -> tuple[int, int]:
    """Divide a stretch of steps into Keras's epochs: how many, and the steps of each.

    >>> split(400), split(2600)
    ((1, 400), (3, 900))
    """
    return (1, steps) if steps < EPOCH_STEPS else (math.ceil(steps / EPOCH_STEPS), EPOCH_STEPS)
