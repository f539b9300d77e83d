"""Row rules: every row in one place, shards as equal as can be, busy rows on all of them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.partitioners.row_rule import (
    MAX_SHUFFLED_ROWS,
    RULES,
    Contiguous,
    Modulo,
    ShuffledRows,
    rows_of,
    rows_per_shard,
    rule_name,
)


@pytest.mark.parametrize("kind", RULES.values(), ids=RULES)
@given(data=st.data(), rows=st.integers(1, 500))
def test_every_row_has_one_place_and_is_found_there(kind: Any, data: Any, rows: int) -> None:
    rule = kind(rows=rows, shards=data.draw(st.integers(1, rows)))
    every = np.arange(rows)
    shards, places = rule.shard_of(every), rule.place_of(every)
    assert tuple(np.bincount(shards, minlength=rule.shards)) == rows_per_shard(rule)
    for shard in range(rule.shards):
        held = rows_of(rule, shard)
        np.testing.assert_array_equal(shards[held], shard)
        np.testing.assert_array_equal(places[held], np.arange(len(held)))
        if kind is not ShuffledRows:
            assert (np.diff(held) > 0).all()


@pytest.mark.parametrize("kind", RULES.values(), ids=RULES)
def test_a_single_row_is_a_number_too(kind: Any) -> None:
    rule = kind(rows=10**6, shards=8)
    row = 123_456
    assert rows_of(rule, int(rule.shard_of(row)))[int(rule.place_of(row))] == row


def _busiest(rule: Any, distance: int) -> int:
    """How many of 400 busy rows lie on the shard that has most of them."""
    busy = np.arange(400) * distance % rule.rows
    return int(np.max(np.bincount(rule.shard_of(busy), minlength=rule.shards)))


@pytest.mark.parametrize("distance", [1, 2, 8, 10, 16, 100, 128, 1000])
def test_busy_rows_in_regular_distances_are_spread(distance: int) -> None:
    rows, shards = 10**6, 8
    assert _busiest(ShuffledRows(rows, shards), distance) <= 1.25 * 400 / shards
    if distance % shards == 0:
        assert _busiest(Modulo(rows, shards), distance) == 400


def test_the_first_rows_are_on_all_shards_but_for_neighbours_that_stay_together() -> None:
    assert _busiest(Contiguous(10**6, 8), 1) == 400
    assert _busiest(Modulo(10**6, 8), 1) == 50


@pytest.mark.parametrize("kind", RULES.values(), ids=RULES)
def test_what_makes_no_sense_is_refused(kind: Any) -> None:
    with raises(ConfigError, "shards: ", received=0, remedy="1 or more"):
        kind(rows=4, shards=0)
    with raises(ConfigError, "shards: ", received=5, remedy="4 rows"):
        kind(rows=4, shards=5)


def test_more_rows_than_can_be_shuffled() -> None:
    assert ShuffledRows(MAX_SHUFFLED_ROWS, 4).multiplier < 2**63 // MAX_SHUFFLED_ROWS
    with raises(
        ConfigError, "rows: ", received=MAX_SHUFFLED_ROWS + 1, remedy="partitioners.RowModulo"
    ):
        ShuffledRows(MAX_SHUFFLED_ROWS + 1, 4)


def test_a_rule_of_nobody_is_refused() -> None:
    class Backwards(Contiguous):
        pass

    assert [rule_name(kind(4, 2)) for kind in RULES.values()] == list(RULES)
    with raises(ValueError, "row rule: ", received="Backwards"):
        rule_name(Backwards(4, 2))
