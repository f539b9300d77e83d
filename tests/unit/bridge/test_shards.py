"""Values that a rule cuts into shards are joined again, as arrays and as tensors."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given

from tfps.bridge.variables.shards import join_by_rule, split_by_rule
from tfps.partitioners.row_rule import Contiguous, Modulo, ShuffledRows, rows_of


@pytest.mark.parametrize("kind", [Contiguous, Modulo, ShuffledRows])
@given(data=st.data(), rows=st.integers(1, 60))
def test_cut_and_joined(kind: Any, data: Any, rows: int) -> None:
    rule = kind(rows, data.draw(st.integers(1, rows)))
    table = np.arange(2.0 * rows).reshape(rows, 2)
    parts = split_by_rule(tf.constant(table), rule)
    np.testing.assert_array_equal(join_by_rule(parts, rule), table)
    for shard, (part, array) in enumerate(zip(parts, split_by_rule(table, rule), strict=True)):
        np.testing.assert_array_equal(part, array)
        np.testing.assert_array_equal(array, table[rows_of(rule, shard)])
