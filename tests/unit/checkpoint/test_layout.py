"""Any rule reads what any rule has stored, each row once and into its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.checkpoint.layout import (
    RowBlock,
    RowMapping,
    divide_into_blocks,
    find_moves,
    group_by_bytes,
    logical_rows_at,
)
from tfps.partitioners.row_rule import RULES, Contiguous, RowRule, rows_per_shard

PAIRS = [(stored, wanted) for stored in RULES.values() for wanted in RULES.values()]


def _blocks(rule: RowRule, rows_per_block: int) -> list[RowBlock]:
    return [
        block
        for shard, rows in enumerate(rows_per_shard(rule))
        for block in divide_into_blocks(
            tensor="t", shard=shard, rows=rows, rows_per_block=rows_per_block
        )
    ]


def _rows_of_shard(rule: RowRule, shard: int) -> np.ndarray[Any, Any]:
    """The logical numbers of a shard's rows stand for their values."""
    return logical_rows_at(rule, shard, range(rows_per_shard(rule)[shard]))


def _index(rows: Any) -> Any:
    return list(rows)


@pytest.mark.parametrize(("stored_kind", "wanted_kind"), PAIRS)
@given(data=st.data())
def test_every_pair_of_rules(stored_kind: Any, wanted_kind: Any, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 40))
    stored = stored_kind(rows, data.draw(st.integers(1, min(rows, 6))))
    wanted = wanted_kind(rows, data.draw(st.integers(1, min(rows, 6))))
    blocks = _blocks(stored, data.draw(st.integers(1, 12)))
    for shard in range(wanted.shards):
        expected = _rows_of_shard(wanted, shard)
        found, writes = np.full_like(expected, -1), np.zeros(len(expected), int)
        for move in find_moves(blocks, stored=stored, wanted=wanted, shard=shard):
            values = logical_rows_at(stored, move.block.shard, move.block.places)
            found[_index(move.target)] = values[_index(move.source)]
            writes[_index(move.target)] += 1
        assert (writes == 1).all()
        np.testing.assert_array_equal(found, expected)


@given(rows=st.integers(1, 60), shards=st.integers(1, 6), other=st.integers(1, 6))
def test_neighbouring_rows_read_only_what_they_overlap(rows: int, shards: int, other: int) -> None:
    stored = Contiguous(rows, min(shards, rows))
    wanted = Contiguous(rows, min(other, rows))
    read = [
        move
        for shard in range(wanted.shards)
        for move in find_moves(_blocks(stored, rows), stored=stored, wanted=wanted, shard=shard)
    ]
    assert all(isinstance(move.source, range) and move.source.step == 1 for move in read)
    assert all(isinstance(move.target, range) and move.target.step == 1 for move in read)
    assert len(read) <= stored.shards + wanted.shards - 1


@pytest.mark.parametrize("kind", RULES.values())
def test_the_same_rule_takes_whole_blocks(kind: Any) -> None:
    rule = kind(20, 3)
    read = list(find_moves(_blocks(rule, 4), stored=rule, wanted=rule, shard=1))
    assert [move.block.begin for move in read] == [0, 4]
    assert all(move.takes_all and move.target == move.block.places for move in read)


def test_a_variable_without_rows() -> None:
    rule = Contiguous(0, 1)
    (block,) = divide_into_blocks(tensor="t", shard=0, rows=0, rows_per_block=8)
    assert block.rows == 0
    assert list(find_moves([block], stored=rule, wanted=rule, shard=0)) == [
        RowMapping(block, range(0), range(0))
    ]


@given(sizes=st.lists(st.integers(0, 20), max_size=30), limit_bytes=st.integers(1, 25))
def test_groups_keep_the_order_and_the_limit(sizes: list[int], limit_bytes: int) -> None:
    groups = group_by_bytes(enumerate(sizes), limit_bytes=limit_bytes)
    assert [item for group in groups for item in group] == list(range(len(sizes)))
    for group in groups:
        assert len(group) == 1 or sum(sizes[item] for item in group) <= limit_bytes


@given(rows=st.integers(0, 50), rows_per_block=st.integers(0, 20))
def test_blocks_cover_a_shard(rows: int, rows_per_block: int) -> None:
    blocks = divide_into_blocks(tensor="t", shard=2, rows=rows, rows_per_block=rows_per_block)
    assert [place for block in blocks for place in block.places] == list(range(rows))
    assert len({block.key for block in blocks}) == len(blocks)
