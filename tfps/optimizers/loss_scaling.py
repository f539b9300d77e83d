"""Loss scaling with several workers: a gradient is divided by what its own worker multiplied by."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from tfps.optimizers.wrapped import bare


def loss_scale_of(optimizer: Any) -> Any:
    """The Keras variable that the loss of a step is multiplied by; None: there is none."""
    optimizer = bare(optimizer)
    return optimizer.dynamic_scale if isinstance(optimizer, LossScaleOptimizer) else None


def divided(gradient: Any, scale: tf.Tensor) -> Any:
    """A gradient, dense or rows, of the loss before it was multiplied by a scale."""
    if isinstance(gradient, tf.IndexedSlices):
        values = divided(gradient.values, scale)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    # A number of 16 bits may be too small once it is divided: Keras goes on with 32 bits, too.
    dtype = tf.float64 if gradient.dtype == tf.float64 else tf.float32
    return tf.cast(gradient, dtype) / tf.cast(scale, dtype)


def for_divided(optimizer: Any, inner: Any, *, scale: tf.Tensor | None) -> None:
    """Let a copy of a `LossScaleOptimizer` apply gradients that are divided already.

    Every update counts as in Keras: one that is not finite is skipped and halves the scale, and so
    many others in a row double it. But workers that compute at the same time find the same
    overflow. Each of them says by what it multiplied, and the scale becomes half of that unless it
    is as small already; else each overflow would halve it as often as there are workers.

    Args:
        optimizer: the copy.
        inner: what applies finite gradients.
        scale: that the gradients were multiplied by; None: the optimizer's own.
    """

    def skip() -> None:
        optimizer.step_counter.assign(0)
        own = tf.convert_to_tensor(optimizer.dynamic_scale.value)
        optimizer.dynamic_scale.assign(tf.minimum(own, 0.5 * (own if scale is None else scale)))

    optimizer.__dict__.update(
        inner_optimizer=inner,
        _overwrite_variable_with_gradient=lambda _: True,  # by which Keras divides nothing
        _stateful_handle_non_finite_grads=skip,
    )
