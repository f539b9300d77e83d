"""Supports loss scaling with several workers: each gradient is divided by its worker's scale."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.bridge.keras_private import LossScaleOptimizer
from tfps.optimizers.wrapped import unwrap_optimizer


def get_loss_scale(optimizer: Any) -> Any:
    """Return the Keras variable by which the loss of a step is multiplied, or None."""
    optimizer = unwrap_optimizer(optimizer)
    return optimizer.dynamic_scale if isinstance(optimizer, LossScaleOptimizer) else None


def unscale_gradient(gradient: Any, scale: tf.Tensor) -> Any:
    """Divide a dense or sparse gradient by the scale of its loss."""
    if isinstance(gradient, tf.IndexedSlices):
        values = unscale_gradient(gradient.values, scale)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    # The quotient may be too small for 16 bits: Keras continues with 32 bits, too.
    dtype = tf.float64 if gradient.dtype == tf.float64 else tf.float32
    return tf.cast(gradient, dtype) / tf.cast(scale, dtype)


def accept_unscaled_gradients(optimizer: Any, inner: Any, *, scale: tf.Tensor | None) -> None:
    """Modify a copy of a `LossScaleOptimizer` to apply gradients that are already divided.

    As in Keras, an update that is not finite is skipped and halves the scale, and a number of
    finite ones in a row double it. But workers that compute at the same time find the same
    overflow, which would halve the scale once per worker. So each worker sends the scale that it
    used, and the scale becomes half of that unless it is already smaller.

    Args:
        optimizer: the copy.
        inner: the optimizer that applies finite gradients.
        scale: the scale by which the worker multiplied; None for the optimizer's own.
    """

    def skip() -> None:
        optimizer.step_counter.assign(0)
        own = tf.convert_to_tensor(optimizer.dynamic_scale.value)
        optimizer.dynamic_scale.assign(tf.minimum(own, 0.5 * (own if scale is None else scale)))

    optimizer.__dict__.update(
        inner_optimizer=inner,
        _overwrite_variable_with_gradient=lambda _: True,  # so that Keras does not divide
        _stateful_handle_non_finite_grads=skip,
    )
