"""Checks the arguments of `pull_rows` and `push_rows` before any request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.errors import ConfigError
from tfps.strategy.primitives.named_parameter import NamedParameter, NamedParameters


def find_table(parameters: NamedParameters, name: Any, *, source: str) -> NamedParameter:
    """Return the table with a name.

    Args:
        parameters: the variables that users can name.
        name: the table's name.
        source: the method that was called, for messages.

    Raises:
        ConfigError: it is not a name, no variable has it, or the variable has no rows.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"name: received {name!r}, expected the name of one table as a string: the path of a "
            "Keras variable, or the name of a tf.Variable",
            source=source,
        )
    (table,) = parameters.find([name])
    if len(table.shape) < 2:
        raise ConfigError(
            f"name: received {name!r} of shape {table.shape}, expected a table of two or more "
            "axes; for other variables use strategy.pull() and strategy.push()",
            source=source,
        )
    return table


def get_keras_variable(table: NamedParameter, *, source: str) -> Any:
    """Return a table's Keras variable, which an optimizer needs.

    Raises:
        ConfigError: the table is a raw variable.
    """
    if table.keras_variable is None:
        raise ConfigError(
            f"optimizer: received one for the tf.Variable {table.path}, expected None, since "
            "optimizers of Keras update only a keras.Variable; make it one, or scale the "
            "gradients by a learning rate and leave the optimizer out",
            source=source,
        )
    return table.keras_variable


def to_row_ids(value: Any, table: NamedParameter, *, source: str) -> tf.Tensor:
    """Return ids of rows as an int64 vector; on the coordinator, check their values too.

    Raises:
        ConfigError: they are not a vector of integers, or not ids of the table.
    """
    ids = _as_tensor(value, "ids", "a vector of integers", dtype=tf.int64, source=source)
    if not ids.dtype.is_integer:
        raise ConfigError(
            f"ids: received {ids.dtype.name}, expected integers, such as int64; cast them",
            source=source,
        )
    if ids.shape.rank not in (1, None):
        raise ConfigError(
            f"ids: received the shape {_to_text(ids.shape)}, expected a vector with an id for each "
            "row; flatten the ids with tf.reshape(ids, [-1])",
            source=source,
        )
    if tf.executing_eagerly():
        _refuse_unknown_ids(ids.numpy(), table, source=source)
    return tf.ensure_shape(tf.cast(ids, tf.int64), [None])


def _refuse_unknown_ids(ids: np.ndarray[Any, Any], table: NamedParameter, *, source: str) -> None:
    rows = table.shape[0]
    (wrong,) = np.nonzero((ids < 0) | (ids >= rows))
    if wrong.size:
        first = int(wrong[0])
        raise ConfigError(
            f"ids: received {ids[first]} at position {first}, expected 0 to {rows - 1}, the rows "
            f"of {table.path}; map ids into this range, for example with keras.layers.Hashing, or "
            "make the table larger",
            source=source,
        )


def to_row_gradients(
    value: Any, table: NamedParameter, ids: tf.Tensor, *, source: str
) -> tf.Tensor:
    """Return gradients, a row for each id, in the table's dtype.

    Raises:
        ConfigError: they have another shape, or a dtype that cannot be cast.
    """
    dtype = table._value.dtype
    expected = [ids.shape[0], *table.shape[1:]]
    gradients = _as_tensor(
        value,
        "gradients",
        f"{dtype.name} of shape {_to_text(expected)}",
        dtype=dtype,
        source=source,
    )
    if not gradients.shape.is_compatible_with(expected):
        raise ConfigError(
            f"gradients: received the shape {_to_text(gradients.shape)}, expected "
            f"{_to_text(expected)}: a row of {table.path} for each id, including repeated ids",
            source=source,
        )
    if gradients.dtype != dtype and not (gradients.dtype.is_floating and dtype.is_floating):
        raise ConfigError(
            f"gradients: received {gradients.dtype.name}, expected {dtype.name}, the dtype of "
            f"{table.path}; cast the gradients",
            source=source,
        )
    return tf.ensure_shape(tf.cast(gradients, dtype), [None, *table.shape[1:]])


def to_version(value: Any, *, servers: int, source: str) -> tf.Tensor:
    """Return a version as an int64 vector; does not check that servers have reached it.

    Raises:
        ConfigError: it is not a vector with one integer for each server.
    """
    expected = f"the version of a pull: {servers} integers, one for each parameter server"
    version = _as_tensor(value, "version", expected, dtype=tf.int64, source=source)
    if not (version.dtype.is_integer and version.shape.is_compatible_with([servers])):
        raise ConfigError(
            f"version: received {version.dtype.name} of shape {_to_text(version.shape)}, expected "
            f"{expected}",
            source=source,
        )
    if tf.executing_eagerly() and (version.numpy() < 0).any():
        raise ConfigError(
            f"version: received {version.numpy().tolist()}, expected {expected}, from 0",
            source=source,
        )
    return tf.ensure_shape(tf.cast(version, tf.int64), [servers])


def _as_tensor(value: Any, name: str, expected: str, *, dtype: tf.DType, source: str) -> tf.Tensor:
    """Convert to a tensor; Python numbers and lists get the wanted dtype if they can."""
    hint = dtype if isinstance(value, list | tuple | int | float) else None
    try:
        return tf.convert_to_tensor(value, dtype_hint=hint)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name}: received {type(value).__name__}, which TensorFlow cannot convert to a "
            f"tensor; expected {expected}",
            source=source,
        ) from error


def _to_text(shape: tf.TensorShape | Sequence[int | None]) -> str:
    """Return a shape as users write it; None for a dimension that is not known yet."""
    if isinstance(shape, tf.TensorShape):
        if shape.rank is None:
            return "of any rank"
        shape = shape.as_list()
    return str(tuple(shape))
