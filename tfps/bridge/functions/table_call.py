"""The call of a `keras.layers.Embedding` whose table lies on servers: it looks up single rows."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.step_scope import current_step
from tfps.bridge.variables.server_variable import ServerVariable


def asks_for_rows(layer: Any) -> bool:
    """Return whether a layer looks up rows of a table and does not read all of it."""
    is_table = isinstance(layer, keras.layers.Embedding)
    return is_table and not layer.lora_enabled and layer.quantization_mode is None


def rows_asked_for(layer: Any, inputs: Any) -> Any:
    """Return the output of a layer whose table lies on servers; None if Keras must compute it.

    Args:
        layer: a Keras layer.
        inputs: the ids, as a dense, ragged or sparse tensor.
    """
    if not asks_for_rows(layer):
        return None
    if isinstance(inputs, tf.SparseTensor):
        # For a missing id Keras returns the first row.
        dense = tf.sparse.to_dense(inputs, validate_indices=False)
        return rows_asked_for(layer, tf.ensure_shape(dense, inputs.shape))
    if isinstance(inputs, tf.RaggedTensor):
        rows = rows_asked_for(layer, inputs.flat_values)
        return None if rows is None else inputs.with_flat_values(rows)
    if not isinstance(inputs, tf.Tensor):
        return None
    ids = tf.cast(inputs, tf.int64)
    ids = tf.where(ids < 0, ids + layer.input_dim, ids)  # as Keras counts them
    rows = _look_up(layer._embeddings, ids)
    return None if rows is None else keras.ops.cast(rows, dtype=layer.compute_dtype)


def _look_up(table: Any, ids: tf.Tensor) -> tf.Tensor | None:
    if (step := current_step()) is not None:
        return step.look_up(table, ids)
    value = table._value
    if not isinstance(value, ServerVariable) or private.tracing_for_a_saved_model():
        return None
    return value.sparse_read(ids)
