"""Prepares gradients on the worker where the whole model is needed: global norms, overflows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.keras_private import LossScaleOptimizer, clip_by_global_norm
from tfps.bridge.variables.shards import get_shards
from tfps.optimizers.elementwise import clips_on_worker
from tfps.optimizers.wrapped import get_devices, get_leaf_optimizers, unwrap_optimizer


def prepare_gradients(
    optimizer: Any,
    gradients: list[tf.Tensor],
    *,
    variables: Sequence[Any],
    read: Callable[[Any], tf.Tensor],
    clips_all: bool = False,
) -> list[tf.Tensor]:
    """Prepare gradients on the worker, which has all of them separately.

    The norms of single gradients are clipped here, because a server stores many as one vector. The
    rest applies to optimizers whose variables are on several servers. With loss scaling, if any
    gradient is not finite all become NaN, so that all servers skip the step together. The global
    norm is clipped here, on the unscaled gradients.

    Args:
        optimizer: the optimizer that will apply them.
        gradients: dense gradients of the whole model.
        variables: the variables of the gradients.
        read: returns the worker's value of an optimizer's variable.
        clips_all: whether no server gets all gradients, wherever the variables are.
    """
    optimizer = unwrap_optimizer(optimizer)
    if clips_on_worker(optimizer):
        clipped = _clip_unscaled(gradients, optimizer.loss_scale_factor, optimizer._clip_gradients)
        return [
            gradient if variable.overwrite_with_gradient else new  # a value, not a gradient
            for gradient, new, variable in zip(gradients, clipped, variables, strict=True)
        ]
    scale: Any = None
    if isinstance(optimizer, LossScaleOptimizer) and len(get_devices(optimizer)) > 1:
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
        gradients = [tf.where(finite, g, tf.constant(float("nan"), g.dtype)) for g in gradients]
        scale = read(optimizer.dynamic_scale)
    for leaf in get_leaf_optimizers(optimizer):
        if leaf.global_clipnorm and (clips_all or len(get_devices(leaf)) > 1):
            gradients = _clip_together(leaf, gradients, variables=variables, scale=scale)
        if leaf.clipnorm and any(len(get_shards(v)) > 1 for v in leaf._trainable_variables):
            # No shard has a larger norm, so the server does not clip again.
            gradients = _clip_together(leaf, gradients, variables=variables, scale=scale)
    return gradients


def _clip_together(
    leaf: Any, gradients: list[tf.Tensor], *, variables: Sequence[Any], scale: Any
) -> list[tf.Tensor]:
    """Clip the gradients of one inner optimizer by their norms; return the others unchanged."""
    own = {id(variable) for variable in leaf._trainable_variables}
    positions = [i for i, variable in enumerate(variables) if id(variable) in own]
    clipped = _clip_unscaled(
        [gradients[i] for i in positions],
        scale if leaf.loss_scale_factor is None else leaf.loss_scale_factor,
        lambda each: (
            clip_by_global_norm(each, leaf.global_clipnorm)
            if leaf.global_clipnorm
            else leaf._clip_gradients(each)
        ),
    )
    result = list(gradients)
    for i, gradient in zip(positions, clipped, strict=True):
        result[i] = gradient
    return result


def _clip_unscaled(
    gradients: list[tf.Tensor], scale: Any, clip: Callable[[list[tf.Tensor]], list[tf.Tensor]]
) -> list[tf.Tensor]:
    """Clip gradients of a scaled loss as if the loss were unscaled."""
    if scale is None:
        return clip(gradients)
    clipped = clip([g / tf.cast(scale, g.dtype) for g in gradients])
    return [g * tf.cast(scale, g.dtype) for g in clipped]
