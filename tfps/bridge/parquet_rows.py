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

from tfps.bridge.tensorflow_private import register_named_function

COUNT = "tfps_parquet_groups"  # (file) -> the number of its row groups
READ = "tfps_parquet_rows"  # (file, group, columns, their types) -> an array for each column
# The types of columns, and the values that replace missing ones.
MISSING = {"int64": 0, "float32": 0.0, "string": ""}


def register_parquet() -> None:
    """Register the functions with which graphs read Parquet files in this process."""
    register_named_function(COUNT, _count)
    register_named_function(READ, _read)


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

    def group(number: tf.Tensor) -> tf.data.Dataset:
        arrays = tf.raw_ops.PyFunc(
            input=[file, number, names, [dtype.name for dtype in dtypes]], token=READ, Tout=dtypes
        )
        arrays = [tf.ensure_shape(array, [None]) for array in arrays]
        return tf.data.Dataset.from_tensor_slices(tuple(arrays))

    (groups,) = tf.raw_ops.PyFunc(input=[file], token=COUNT, Tout=[tf.int64])
    return tf.data.Dataset.range(tf.ensure_shape(groups, [])).flat_map(group)


def column_problems(file: str, columns: Mapping[str, str]) -> list[str]:
    """Return a message for each column that a file lacks, or that has another type than expected.

    Args:
        file: the file's name.
        columns: name -> ``int64``, ``float32`` or ``string``.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        OSError: the file does not exist, or is no Parquet file.
    """
    schema = _opened(file).schema_arrow
    problems = []
    for name, kind in columns.items():
        index = schema.get_field_index(name)
        if index < 0:
            problems.append(f"{file}: column {name}: received none, expected {kind}")
        elif not _suits(schema.field(index).type, kind):
            found = schema.field(index).type
            problems.append(f"{file}: column {name}: received {found}, expected {kind}")
    return problems


def _opened(file: str) -> Any:
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


def _suits(found: Any, kind: str) -> bool:
    import pyarrow

    kinds = pyarrow.types
    if kind == "string":
        checks = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
        value = found.value_type if kinds.is_dictionary(found) else found
        return any(check(value) for check in checks)
    if kind == "int64":
        return bool(kinds.is_integer(found) or kinds.is_boolean(found))
    return bool(kinds.is_integer(found) or kinds.is_floating(found))


def _count(file: bytes) -> np.int64:
    return np.int64(_opened(file.decode()).num_row_groups)


def _read(file: bytes, group: np.int64, names: np.ndarray, kinds: np.ndarray) -> list[np.ndarray]:
    texts = ([text.decode() for text in array.tolist()] for array in (names, kinds))
    columns = dict(zip(*texts, strict=True))
    if problems := column_problems(file.decode(), columns):
        raise ValueError("; ".join(problems))
    table = _opened(file.decode()).read_row_group(int(group), columns=list(columns))
    return [_array(table.column(name), kind) for name, kind in columns.items()]


def _array(column: Any, kind: str) -> np.ndarray:
    if kind == "string":
        values = ["" if value is None else value for value in column.to_pylist()]
        return np.array([v.encode() if isinstance(v, str) else v for v in values], dtype=object)
    import pyarrow

    typed = column.cast(pyarrow.int64() if kind == "int64" else pyarrow.float32())
    return typed.fill_null(MISSING[kind]).to_numpy()
