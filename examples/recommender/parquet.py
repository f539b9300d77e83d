"""Parquet files with the columns of `recommender.columns`, read with pyarrow.

``label`` and ``I1`` to ``I13`` are whole numbers of any width, ``C1`` to ``C26`` texts. Values may
be missing, but for the label's.
"""

from __future__ import annotations

import tensorflow as tf

from recommender.columns import PARQUET_TYPES
from recommender.settings import NUMBERS
from tfps.bridge.parquet_rows import parquet_rows


def read(file: tf.Tensor) -> tf.data.Dataset:
    """Return the rows of a file: its numbers with the label first, and its categories."""
    types = {name: tf.as_dtype(kind) for name, kind in PARQUET_TYPES.items()}
    rows = parquet_rows(file, types)
    return rows.map(lambda *row: (tf.stack(row[: 1 + NUMBERS]), tf.stack(row[1 + NUMBERS :])))


def parse(
    file: tf.Tensor,  # noqa: ARG001 - as of the other formats
    first: tf.Tensor,  # noqa: ARG001
    rows: tuple[tf.Tensor, tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return numbers, categories and labels of some rows; their types were looked at when read."""
    numbers = tf.cast(rows[0], tf.float32)
    return numbers[:, 1:], rows[1], numbers[:, 0]
