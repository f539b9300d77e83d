"""What no single server can decide about a gradient: its global norm, and whether it is finite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from keras.src.optimizers.base_optimizer import clip_by_global_norm
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from tfps.errors import UnsupportedError
from tfps.optimizers.elementwise import clips_on_worker
from tfps.optimizers.wrapped import leaves


def for_whole_model(
    optimizer: Any,
    gradients: list[tf.Tensor],
    *,
    variables: Sequence[Any],
    servers: int,
    value_of: Callable[[Any], Any],
) -> list[tf.Tensor]:
    """Prepare gradients on the worker, which sees all of them, each by itself.

    Norms of single gradients are clipped here, because a server sees many as one vector. The rest
    is for several servers: with loss scaling a gradient that is not finite anywhere becomes so
    everywhere, so that all servers skip the step together; and the global norm is clipped here, on
    the unscaled gradient.

    Args:
        optimizer: what will apply them.
        gradients: dense, of the whole model.
        variables: whose gradients they are.
        servers: how many share them.
        value_of: the worker's copy of an optimizer's variable.
    """
    if clips_on_worker(optimizer):
        clipped = _unscaled(gradients, optimizer.loss_scale_factor, optimizer._clip_gradients)
        return [
            gradient if variable.overwrite_with_gradient else new  # a value, not a gradient
            for gradient, new, variable in zip(gradients, clipped, variables, strict=True)
        ]
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
    return _unscaled(
        gradients, scale, lambda each: clip_by_global_norm(each, inner[0].global_clipnorm)
    )


def _unscaled(
    gradients: list[tf.Tensor],
    scale: Any,
    clip: Callable[[list[tf.Tensor]], list[tf.Tensor]],
) -> list[tf.Tensor]:
    """Clip gradients of a scaled loss as if it were not scaled."""
    if scale is None:
        return clip(gradients)
    clipped = clip([g / tf.cast(scale, g.dtype) for g in gradients])
    return [g * tf.cast(scale, g.dtype) for g in clipped]
