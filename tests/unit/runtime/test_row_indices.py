"""Rows of tables are named by 32-bit numbers, two in one id of a message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfps.runtime.message.row_indices import decode_row_indices, encode_row_indices

MANY_ROWS = 2**31


def _shards(*rows: int) -> list[Any]:
    return [SimpleNamespace(_value=SimpleNamespace(shape=(each, 4))) for each in rows]


@pytest.mark.parametrize(
    ("rows", "row_indices", "id_count"),
    [
        ([10], [[3, 1]], 2),
        ([10], [[3, 1, 9]], 2),
        ([10, 20, 5], [[3, 1], [], [4]], 3),
        ([10, 20, 5], [[3, 1], None, [4]], 3),
        ([10, 20], [[], []], 1),
        ([10, MANY_ROWS], [[3], [2**31 - 1]], 4),
        ([10, MANY_ROWS - 1], [[3], [2**31 - 2]], 2),
    ],
)
def test_what_is_named_is_read(
    rows: list[int], row_indices: list[list[int] | None], id_count: int
) -> None:
    shards = _shards(*rows)
    named = [
        None if each is None else (tf.constant(each, tf.int64), tf.constant(len(each), tf.int64))
        for each in row_indices
    ]
    ids = encode_row_indices(shards, named)
    assert (ids.dtype, ids.shape.rank, len(ids)) == (tf.int64, 1, id_count)
    found = tf.function(lambda ids: decode_row_indices(shards, ids), autograph=False)(ids)
    assert all(each.dtype == tf.int64 for each in found)
    for each, expected in zip(found, row_indices, strict=True):
        np.testing.assert_array_equal(each, expected or [])
