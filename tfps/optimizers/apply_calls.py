"""What stands for the `apply` of a Keras optimizer where its own would be slow, or do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.compiled_function import compiled_function


def apply_compiled(optimizer: Any, gradients: Sequence[tf.Tensor], variables: list[Any]) -> None:
    """The optimizer's own update as one loop over each slab, instead of one per operation.

    What a learning rate schedule computes stays outside: users write those as well.
    """
    optimizer.__dict__["_learning_rate"] = tf.convert_to_tensor(optimizer.learning_rate)

    @compiled_function
    def update(*values: tf.Tensor) -> None:
        with private.default_replica_context():
            optimizer.apply(list(values), variables)

    update(*gradients)


def count_update(
    optimizer: Any, gradients: Sequence[tf.Tensor], trainable_variables: Sequence[Any]
) -> None:
    """Of an update whose gradients are all on other servers; Keras counts none without any."""
    del gradients, trainable_variables
    optimizer._iterations.assign_add(1)
