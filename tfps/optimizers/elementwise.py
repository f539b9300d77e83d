"""Detects elementwise optimizers, which may update many variables as one vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.compiled_function import compiled_function
from tfps.bridge.keras_private import find_optimizers
from tfps.optimizers.wrapped import unwrap_optimizer

# Each item of the new value depends only on the same item of the gradient, the variable and the
# slots. Lamb and Adafactor take norms of a whole variable, Muon needs its matrices.
ELEMENTWISE = find_optimizers(
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lion",
    "Nadam",
    "RMSprop",
    "SGD",
    "ScheduleFreeAdamW",
)


def is_elementwise(optimizer: Any) -> bool:
    """Return whether an optimizer's update of a vector equals the updates of its parts.

    A user's own class counts as not elementwise unless it sets ``tfps_elementwise = True`` itself:
    a subclass of Adam may compute anything.

    Example:

    >>> import keras
    >>> is_elementwise(keras.optimizers.Adam()), is_elementwise(keras.optimizers.Lamb())
    (True, False)
    """
    kind = type(optimizer)
    return kind in ELEMENTWISE or vars(kind).get("tfps_elementwise") is True


def clips_on_worker(optimizer: Any) -> bool:
    """Return whether the worker clips each variable's gradient by its norm before sending it.

    A server that stores variables as one vector cannot compute the norm of each. With loss scaling
    or accumulation the server must clip; then each variable is stored separately.

    Args:
        optimizer: the optimizer that the step calls, including wrappers.
    """
    rule = unwrap_optimizer(optimizer)
    return bool(getattr(rule, "clipnorm", None)) and not rule.gradient_accumulation_steps


def may_share_slabs(optimizer: Any, leaf: Any) -> bool:
    """Return whether the variables of an optimizer may be in slabs that it updates as a whole.

    Args:
        optimizer: the optimizer that the step calls.
        leaf: this optimizer, or one that it wraps.
    """
    return is_elementwise(leaf) and (not leaf.clipnorm or clips_on_worker(optimizer))


def may_be_compiled(optimizer: Any) -> bool:
    """Return whether XLA can compile an optimizer's update of slabs; results differ below 1e-6.

    Moving averages and accumulation assign inside conditions, and a user's own optimizer may use
    operations that XLA does not support.
    """
    return (
        type(optimizer) in ELEMENTWISE
        and not optimizer.use_ema
        and not optimizer.gradient_accumulation_steps
    )


def apply_compiled(optimizer: Any, gradients: Sequence[tf.Tensor], variables: list[Any]) -> None:
    """Apply gradients with an update that XLA compiles into one loop over each slab.

    The learning rate is computed outside of the compiled code, since users write schedules.
    """
    optimizer.__dict__["_learning_rate"] = tf.convert_to_tensor(optimizer.learning_rate)

    @compiled_function
    def update(*values: tf.Tensor) -> None:
        with private.default_replica_context():
            optimizer.apply(list(values), variables)

    update(*gradients)
