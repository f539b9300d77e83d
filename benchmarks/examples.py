"""Training data of a benchmark: arrays for `fit`, and a dataset for custom loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Examples:
    """Inputs and their labels, an example in each row."""

    inputs: np.ndarray
    labels: np.ndarray
    batch_size: int  # examples in one worker's step

    def arrays(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs and labels of one epoch of `steps` steps."""
        positions = np.arange(steps * self.batch_size) % len(self.inputs)
        return self.inputs[positions], self.labels[positions]

    def dataset_function(self) -> Callable[..., Any]:
        """Return a function that makes an endless dataset; it runs on each worker.

        Keras feeds arrays the same way: a permutation per epoch, and one gather per batch.
        """
        batches = len(self.inputs) // self.batch_size

        def dataset(context: Any = None) -> Any:
            del context  # endless and shuffled: the workers need no parts of their own
            import tensorflow as tf

            arrays = tf.constant(self.inputs), tf.constant(self.labels)

            def permuted(_: Any) -> Any:
                order = tf.random.shuffle(tf.range(len(self.labels)))[: batches * self.batch_size]
                return tf.data.Dataset.from_tensor_slices(tf.reshape(order, [batches, -1]))

            def gather(positions: Any) -> Any:
                return tuple(tf.gather(array, positions) for array in arrays)

            epochs = tf.data.Dataset.range(1).repeat().flat_map(permuted)
            return epochs.map(gather, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)

        return dataset
