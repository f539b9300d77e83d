"""What no single server can decide about a gradient: its global norm, and whether it is finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.optimizers.base_optimizer import clip_by_global_norm
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from tfps.errors import UnsupportedError
from tfps.optimizers.server_update import leaves


def for_whole_model(
    optimizer: Any,
    gradients: list[tf.Tensor],
    *,
    servers: int,
    value_of: Callable[[Any], Any],
) -> list[tf.Tensor]:
    """Prepare gradients on the worker, which sees all of them; one server needs nothing.

    With loss scaling a gradient that is not finite anywhere becomes so everywhere, so that all
    servers skip the step together. The global norm is clipped here, on the unscaled gradient.

    Args:
        optimizer: what will apply them.
        gradients: dense, of the whole model.
        servers: how many share them.
        value_of: the worker's copy of an optimizer's variable.
    """
    if servers == 1:
        return gradients
    scale: Any = None
    if isinstance(optimizer, LossScaleOptimizer):
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
        gradients = [tf.where(finite, g, tf.constant(float("nan"), g.dtype)) for g in gradients]
        scale = value_of(optimizer.dynamic_scale).read_value()
    inner = leaves(optimizer)
    if all(leaf.global_clipnorm is None for leaf in inner):
        return gradients
    if len(inner) > 1:
        raise UnsupportedError(
            f"{optimizer.name}: global_clipnorm inside a MultiOptimizer on {servers} parameter "
            "servers. Use clipnorm or clipvalue, or one parameter server."
        )
    if inner[0].loss_scale_factor is not None:
        scale = inner[0].loss_scale_factor
    if scale is not None:
        gradients = [g / tf.cast(scale, g.dtype) for g in gradients]
    gradients = clip_by_global_norm(gradients, inner[0].global_clipnorm)
    if scale is not None:
        gradients = [g * tf.cast(scale, g.dtype) for g in gradients]
    return gradients
