"""Optimizers that may see many variables as one vector, and how such an update is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.compiled_function import compiled_function
from tfps.optimizers.wrapped import bare

# Each item of the new value depends on the same item of the gradient, the variable and the slots
# alone. Lamb and Adafactor take norms of a whole variable, Muon needs its matrices.
ELEMENTWISE = frozenset(
    {
        keras.optimizers.Adadelta,
        keras.optimizers.Adagrad,
        keras.optimizers.Adam,
        keras.optimizers.AdamW,
        keras.optimizers.Adamax,
        keras.optimizers.Ftrl,
        keras.optimizers.Lion,
        keras.optimizers.Nadam,
        keras.optimizers.RMSprop,
        keras.optimizers.SGD,
        keras.optimizers.ScheduleFreeAdamW,
    }
)


def is_elementwise(optimizer: Any) -> bool:
    """Whether an optimizer's update of a vector is that of its parts.

    A class of the user's own is not, unless it says ``tfps_elementwise = True`` itself: a subclass
    of Adam may do anything.

    Example:

    >>> is_elementwise(keras.optimizers.Adam()), is_elementwise(keras.optimizers.Lamb())
    (True, False)
    """
    kind = type(optimizer)
    return kind in ELEMENTWISE or vars(kind).get("tfps_elementwise") is True


def clips_on_worker(optimizer: Any) -> bool:
    """Whether each variable's gradient is clipped by its norm before it travels.

    A server that sees a vector cannot take the norms of its parts. It can where gradients are
    unscaled or accumulated first; there the variables stay apart.

    Args:
        optimizer: what the step calls, so a wrapper where there is one.
    """
    rule = bare(optimizer)
    return bool(getattr(rule, "clipnorm", None)) and not rule.gradient_accumulation_steps


def may_share_slabs(optimizer: Any, leaf: Any) -> bool:
    """Whether the variables of an optimizer may lie in slabs that it updates as a whole.

    Args:
        optimizer: what the step calls.
        leaf: it, or one of those that it wraps.
    """
    return is_elementwise(leaf) and (not leaf.clipnorm or clips_on_worker(optimizer))


def may_be_compiled(optimizer: Any) -> bool:
    """Whether XLA computes an optimizer's update of slabs as Keras does, within 1e-6.

    Moving averages and accumulation assign inside conditions; what users wrote may use operations
    that XLA does not know.
    """
    return (
        type(optimizer) in ELEMENTWISE
        and not optimizer.use_ema
        and not optimizer.gradient_accumulation_steps
    )


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
