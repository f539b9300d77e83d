"""The ids of one feature in a batch, dense, ragged or sparse, in a common form."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfps.errors import ConfigError
from tfps.layers.combiner import combine_rows, multiply_by_weights

INTEGERS = "whole numbers, such as int64; cast them, or map strings with keras.layers.StringLookup"


class FeatureIds(NamedTuple):
    """The ids that a feature looks up.

    Args:
        ids: int64, dense; a vector of all ids if examples have different numbers of ids.
        weights: a number for each id, or None.
        lengths: the ragged input; None if all examples have the same number of ids.
    """

    ids: tf.Tensor
    weights: tf.Tensor | None
    lengths: tf.RaggedTensor | None

    @classmethod
    def from_inputs(cls, ids: Any, weights: Any, *, dtype: str, source: str) -> FeatureIds:
        """Convert the inputs of a feature, after the checks that are possible while tracing.

        Args:
            ids: the ids, dense, ragged or sparse.
            weights: weights in the same form, or None.
            dtype: the dtype of the rows, to which weights are cast.
            source: the layer and feature, for error messages.

        Raises:
            ConfigError: the weights have another form than the ids.
        """
        ids = _ragged_or_dense(ids)
        if weights is not None:
            weights = tf.cast(_ragged_or_dense(weights), dtype)
            _refuse_other_form(ids, weights, source=source)
        if not isinstance(ids, tf.RaggedTensor):
            return cls(tf.cast(ids, tf.int64), weights, None)
        if weights is not None:
            same = tf.debugging.assert_equal(
                ids.row_splits,
                tf.cast(weights.row_splits, ids.row_splits.dtype),
                f"{source}: weights: received other row lengths than those of the ids",
            )
            with tf.control_dependencies([] if same is None else [same]):
                weights = tf.identity(weights.flat_values)
        return cls(tf.cast(ids.flat_values, tf.int64), weights, ids)

    def output(self, rows: tf.Tensor, combiner: str | None) -> Any:
        """Return the layer's output for the feature.

        Args:
            rows: a row for each of the ids.
            combiner: the combiner of the table.
        """
        if combiner is None:
            rows = multiply_by_weights(rows, self.weights)
            return rows if self.lengths is None else self.lengths.with_flat_values(rows)
        if self.lengths is not None:
            summed = combine_rows(
                rows, self.weights, combiner=combiner, total=self._group_by_example
            )
            summed.set_shape([self.lengths.shape[0], *rows.shape[1:]])
            return summed
        if self.ids.shape.rank > 1:
            total = functools.partial(tf.reduce_sum, axis=1)
            return combine_rows(rows, self.weights, combiner=combiner, total=total)
        # With one id per example its row is the sum, except for a weight.
        return combine_rows(rows, self.weights, combiner=combiner, total=lambda values: values)

    def _group_by_example(self, values: tf.Tensor) -> tf.Tensor:
        lengths = self.lengths
        assert lengths is not None
        return tf.math.unsorted_segment_sum(values, lengths.value_rowids(), lengths.nrows())


def refuse_ids(ids: Any, combiner: str | None, *, source: str) -> None:
    """Check the ids of a batch or of a Keras `Input`.

    Args:
        ids: the ids, dense, ragged or sparse.
        combiner: the combiner of the table.
        source: the layer and feature, for error messages.

    Raises:
        ConfigError: the ids are no integers, or have a rank that cannot be combined.
    """
    dtype, shape = tf.as_dtype(ids.dtype), tuple(ids.shape)
    if not dtype.is_integer:
        raise ConfigError(f"ids: received {dtype.name}, expected {INTEGERS}", source=source)
    form = _find_form(ids)
    if form != "dense" and len(shape) != 2:
        raise ConfigError(
            f"ids: received {form} ids of rank {len(shape)}, {shape}, expected rank 2: examples "
            "and their ids; merge inner axes, for example with ids.merge_dims(1, -1)",
            source=source,
        )
    if not shape or (combiner is not None and len(shape) > 2):
        raise ConfigError(
            f"ids: received ids of rank {len(shape)}, {shape}, expected rank 1 or 2 for "
            f"combiner={combiner!r}: examples, or examples and their ids; reshape them, or set "
            "combiner=None",
            source=source,
        )


def symbolic_output(ids: Any, combiner: str | None, *, width: int, dtype: str) -> Any:
    """Return the symbolic output for a Keras `Input`."""
    if combiner is not None:
        return keras.KerasTensor((ids.shape[0], width), dtype)
    is_ragged = _find_form(ids) != "dense"
    shape = (ids.shape[0], None) if is_ragged else tuple(ids.shape)
    return keras.KerasTensor((*shape, width), dtype, ragged=is_ragged)


def _find_form(ids: Any) -> str:
    """Return whether a tensor or a Keras `Input` is dense, ragged or sparse."""
    kinds = {"ragged": tf.RaggedTensor, "sparse": tf.SparseTensor}
    is_symbolic = isinstance(ids, keras.KerasTensor)
    for form, kind in kinds.items():
        if getattr(ids, form) if is_symbolic else isinstance(ids, kind):
            return form
    return "dense"


def _ragged_or_dense(values: Any) -> Any:
    """Convert a sparse tensor to a ragged one with the existing values of each example."""
    if not isinstance(values, tf.SparseTensor):
        return values
    return tf.RaggedTensor.from_value_rowids(
        values.values, values.indices[:, 0], nrows=values.dense_shape[0]
    )


def _refuse_other_form(ids: Any, weights: Any, *, source: str) -> None:
    if isinstance(weights, tf.RaggedTensor) != isinstance(ids, tf.RaggedTensor) or (
        not weights.shape.is_compatible_with(ids.shape)
    ):
        raise ConfigError(
            f"weights: received {type(weights).__name__} {tuple(weights.shape)}, expected the "
            f"type and shape of the ids: {type(ids).__name__} {tuple(ids.shape)}",
            source=source,
        )
