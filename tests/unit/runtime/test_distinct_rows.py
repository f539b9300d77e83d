"""Rows that ids name come and go once, shard by shard."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings

from tests.scaled_examples import scaled_examples
from tfps.optimizers.gathered_rows import concat_rows
from tfps.partitioners.row_rule import RULES, ShuffledRows, rows_of
from tfps.runtime.worker.row_gradients import RowValues
from tfps.runtime.worker.shard_rows import DistinctRows

ROWS = 12


def _table(rule: Any) -> Any:
    """Divided among servers that go by the numbers of its shards, the last one first."""
    shards = [
        SimpleNamespace(_value=SimpleNamespace(device=str(rule.shards - 1 - k)))
        for k in range(rule.shards)
    ]
    return SimpleNamespace(_value=SimpleNamespace(shards=shards, rule=rule))


@settings(max_examples=scaled_examples(30))
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(RULES)), st.lists(st.integers(0, ROWS - 1), max_size=20)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 5),
)
def test_each_id_finds_its_row_and_its_gradient_goes_there(
    tables: list[tuple[str, list[int]]], shards: int
) -> None:
    """Whatever the ids and the rules of other tables are."""
    rules = [RULES[name](rows=ROWS, shards=shards) for name, _ in tables]
    devices = [str(k) for k in range(shards)]
    asked = [tf.constant(ids, tf.int64) for _, ids in tables]
    found = DistinctRows.from_ids([*map(_table, rules)], asked, devices=devices)
    for rule, ids, rows in zip(rules, asked, found, strict=True):
        assert rows.requested_ids is ids
        _assert_rows_and_gradient(rule, ids, rows)


def _assert_rows_and_gradient(rule: Any, asked: tf.Tensor, rows: DistinctRows) -> None:
    ids, shards = asked.numpy(), rule.shards
    assert [part.server for part in rows.parts] == [shards - 1 - k for k in range(shards)]
    brought = [rows_of(rule, k)[part.row_indices.numpy()] for k, part in enumerate(rows.parts)]
    ids_of_rows = np.concatenate(brought)
    assert sorted(ids_of_rows) == sorted(set(ids))
    assert int(rows.size) == len(ids_of_rows)
    np.testing.assert_array_equal(ids_of_rows[rows.positions.numpy()], ids)

    gradients = np.arange(1.0, 1 + 2 * len(ids)).reshape(-1, 2)
    values = RowValues.from_gradient(tf.IndexedSlices(tf.constant(gradients), asked), rows)
    pushed = np.zeros([ROWS, 2])
    for own, part in zip(brought, values.values_by_part, strict=True):
        pushed[own] += part.numpy()
    expected = np.zeros([ROWS, 2])
    np.add.at(expected, ids, gradients)
    np.testing.assert_allclose(pushed, expected)


def test_tables_of_one_rule_share_the_operations_that_divide_their_rows() -> None:
    rule, other = ShuffledRows(ROWS, 2), ShuffledRows(ROWS + 1, 2)
    with tf.Graph().as_default() as graph:
        asked = [tf.constant([k, 3], tf.int64) for k in range(4)]
        tables = [_table(rule), _table(other), _table(rule), _table(rule)]
        DistinctRows.from_ids(tables, asked, devices=["0", "1"])
    kinds = Counter(operation.type for operation in graph.get_operations())
    assert kinds["FloorMod"] == kinds["DynamicPartition"] == 2 * len({rule, other})


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 1), (0, 0, 2)])
def test_what_was_split_is_joined_without_a_copy_if_it_is_all_of_it(order: tuple[int, ...]) -> None:
    """Another order, or not all of it, is joined as any other rows are."""
    whole = np.arange(12.0).reshape(6, 2)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        rows = tf.constant(whole)
        parts = tf.split(rows, tf.constant([1, 3, 2], tf.int64), num=3)
        chosen = concat_rows([parts[k] for k in order])
        assert (chosen is rows) == (order == (0, 1, 2))
        found = session.run(chosen)
    ranges = [whole[:1], whole[1:4], whole[4:]]
    np.testing.assert_array_equal(found, np.concatenate([ranges[k] for k in order]))
