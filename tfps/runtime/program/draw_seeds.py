"""Provides seeds for `tf.random` in a step, from a count of draws on the chief."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import tensorflow as tf


class DrawSeeds:
    """A count of a step's draws on the chief, like that of Keras's `SeedGenerator`."""

    def __init__(self) -> None:
        # A thread of its own is in no trace and in no strategy's scope.
        with ThreadPoolExecutor(1) as apart:
            self.state = apart.submit(_create_state).result()

    def next(self) -> tf.Tensor:
        """Return an int64 [2] seed that no other draw has; call it while a step is traced."""
        seed = tf.identity(tf.convert_to_tensor(self.state))
        self.state.assign(seed + tf.constant([0, 1], tf.int64))
        return seed


def _create_state() -> keras.Variable:
    zeros, name = np.zeros([2]), "seed_generator_state"
    return keras.Variable(zeros, dtype="int64", trainable=False, aggregation="none", name=name)
