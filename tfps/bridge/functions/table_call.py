"""Replaces the call of `keras.layers.Embedding`: looks up rows of tables on servers."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.step_scope import current_step
from tfps.bridge.variables.server_variable import ServerVariable


def looks_up_rows(layer: Any) -> bool:
    """Return whether a layer looks up single rows of a table."""
    is_table = isinstance(layer, keras.layers.Embedding)
    return is_table and not layer.lora_enabled and layer.quantization_mode is None


def look_up_rows(layer: Any, inputs: Any) -> Any:
    """Look up a layer's output in a table on servers; return None if Keras must compute it.

    Args:
        layer: a Keras layer.
        inputs: the ids, as a dense, ragged or sparse tensor.
    """
    if not looks_up_rows(layer):
        return None
    if isinstance(inputs, tf.SparseTensor):
        # For a missing id Keras returns the first row.
        dense = tf.sparse.to_dense(inputs, validate_indices=False)
        return look_up_rows(layer, tf.ensure_shape(dense, inputs.shape))
    if isinstance(inputs, tf.RaggedTensor):
        rows = look_up_rows(layer, inputs.flat_values)
        return None if rows is None else inputs.with_flat_values(rows)
    if not isinstance(inputs, tf.Tensor):
        return None
    ids = tf.cast(inputs, tf.int64)
    ids = tf.where(ids < 0, ids + layer.input_dim, ids)  # as Keras counts them
    rows = _read_rows(layer._embeddings, ids)
    return None if rows is None else keras.ops.cast(rows, dtype=layer.compute_dtype)


def _read_rows(table: Any, ids: tf.Tensor) -> tf.Tensor | None:
    if (step := current_step()) is not None:
        return step.look_up(table, ids)
    value = table._value
    if not isinstance(value, ServerVariable) or private.is_tracing_saved_model():
        return None
    return value.sparse_read(ids)
