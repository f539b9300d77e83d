"""Rows of Parquet files, read in the process of the task that iterates over the dataset.

TensorFlow has no operation that reads Parquet, and a dataset that calls Python normally runs only
in the process that created it. So every task registers the same function under one name, and a
graph calls that name on the task that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.named_functions import register_named_function

COUNT_TOKEN = "tfps_parquet_groups"  # (file) -> the number of its row groups
READ_TOKEN = "tfps_parquet_rows"  # (file, group, columns, their types) -> an array for each column
# The types of columns, and the values that replace missing ones.
MISSING_VALUES = {"int64": 0, "float32": 0.0, "string": ""}


def register_parquet() -> None:
    """Register the functions with which graphs read Parquet files in this process."""
    register_named_function(COUNT_TOKEN, _count_row_groups)
    register_named_function(READ_TOKEN, _read_row_group)


def parquet_rows(file: Any, columns: Mapping[str, tf.DType]) -> tf.data.Dataset:
    """Return a dataset of the rows of a file, in their order, as tuples of the columns.

    The dataset reads one row group at a time, on the task that iterates over it.

    Args:
        file: the file's name, a string or a tensor.
        columns: name -> `tf.int64`, `tf.float32` or `tf.string`; a missing value becomes 0 or an
            empty string.

    Raises:
        tf.errors.OpError: during iteration, if the file does not exist, is no Parquet file, lacks a
            column, or has one of another type; the message names the file and the column.

    Example:

    ```python
    rows = parquet_rows("clicks.parquet", {"label": tf.int64, "C1": tf.string})
    ```
    """
    register_parquet()  # this process itself may read
    names, dtypes = list(columns), list(columns.values())

    def read_group(number: tf.Tensor) -> tf.data.Dataset:
        arrays = tf.raw_ops.PyFunc(
            input=[file, number, names, [dtype.name for dtype in dtypes]],
            token=READ_TOKEN,
            Tout=dtypes,
        )
        arrays = [tf.ensure_shape(array, [None]) for array in arrays]
        return tf.data.Dataset.from_tensor_slices(tuple(arrays))

    (groups,) = tf.raw_ops.PyFunc(input=[file], token=COUNT_TOKEN, Tout=[tf.int64])
    return tf.data.Dataset.range(tf.ensure_shape(groups, [])).flat_map(read_group)


def find_column_problems(file: str, columns: Mapping[str, str]) -> list[str]:
    """Return a message for each column that a file lacks, or that has another type than expected.

    Args:
        file: the file's name.
        columns: name -> ``int64``, ``float32`` or ``string``.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        OSError: the file does not exist, or is no Parquet file.
    """
    schema = _open_file(file).schema_arrow
    problems = []
    for name, kind in columns.items():
        index = schema.get_field_index(name)
        if index < 0:
            problems.append(f"{file}: column {name}: received none, expected {kind}")
        elif not _has_type(schema.field(index).type, kind):
            column_type = schema.field(index).type
            problems.append(f"{file}: column {name}: received {column_type}, expected {kind}")
    return problems


def _open_file(file: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{file}: pyarrow, which reads Parquet files, is not installed; pip install "
            "'tfps[recommender]' on all workers"
        ) from error
    try:
        return pyarrow.parquet.ParquetFile(file)
    except pyarrow.ArrowInvalid as error:
        raise OSError(
            f"{file}: received another format, expected a Parquet file: {error}"
        ) from error


def _has_type(column_type: Any, kind: str) -> bool:
    import pyarrow

    kinds = pyarrow.types
    if kind == "string":
        checks = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
        value = column_type.value_type if kinds.is_dictionary(column_type) else column_type
        return any(check(value) for check in checks)
    if kind == "int64":
        return bool(kinds.is_integer(column_type) or kinds.is_boolean(column_type))
    return bool(kinds.is_integer(column_type) or kinds.is_floating(column_type))


def _count_row_groups(file: bytes) -> np.int64:
    return np.int64(_open_file(file.decode()).num_row_groups)


def _read_row_group(
    file: bytes, read_group: np.int64, names: np.ndarray, kinds: np.ndarray
) -> list[np.ndarray]:
    texts = ([text.decode() for text in array.tolist()] for array in (names, kinds))
    columns = dict(zip(*texts, strict=True))
    if problems := find_column_problems(file.decode(), columns):
        raise ValueError("; ".join(problems))
    table = _open_file(file.decode()).read_row_group(int(read_group), columns=list(columns))
    return [_to_array(table.column(name), kind) for name, kind in columns.items()]


def _to_array(column: Any, kind: str) -> np.ndarray:
    if kind == "string":
        values = ["" if value is None else value for value in column.to_pylist()]
        return np.array([v.encode() if isinstance(v, str) else v for v in values], dtype=object)
    import pyarrow

    typed = column.cast(pyarrow.int64() if kind == "int64" else pyarrow.float32())
    return typed.fill_null(MISSING_VALUES[kind]).to_numpy()
