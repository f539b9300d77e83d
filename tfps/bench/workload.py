"""What is trained: two models and one input pipeline, the same for every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHUFFLE = 10_000  # all images of the subset; as float32 they are 31 MB in a dataset's graph


@dataclass(frozen=True)
class Model:
    """A model of the benchmark.

    Args:
        title: what tables and plots call it.
        layers: widths of the dense layers with ReLU, before the output of 10.
    """

    title: str
    layers: tuple[int, ...]

    def build(self, keras: Any) -> Any:
        """Build it, not compiled, with `keras` or `tf_keras`."""
        inputs = keras.Input((28, 28))
        outputs = keras.layers.Flatten()(inputs)
        for width in self.layers:
            outputs = keras.layers.Dense(width, activation="relu")(outputs)
        return keras.Model(inputs, keras.layers.Dense(10)(outputs))

    @property
    def variables(self) -> int:
        """How many variables an optimizer updates."""
        return 2 * (len(self.layers) + 1)


MODELS = {
    "mlp": Model("MLP 784-128-10", (128,)),
    "layers": Model("60 variables", (64,) * 29),
}


def dataset_function(images_path: Path, batch_size: int) -> Callable[..., Any]:
    """Return a function that makes an endless, shuffled dataset; it runs on each worker."""
    with np.load(images_path) as arrays:
        images = (arrays["images"] / 255.0).astype("float32")
        labels = arrays["labels"].astype("int32")

    def dataset(context: Any = None) -> Any:
        del context  # endless and shuffled: the workers need no parts of their own
        import tensorflow as tf

        whole = tf.data.Dataset.from_tensor_slices((images, labels))
        return whole.shuffle(SHUFFLE).repeat().batch(batch_size, drop_remainder=True).prefetch(2)

    return dataset
