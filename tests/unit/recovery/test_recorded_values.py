"""The values of a job in the records of its servers, by the names that users know."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.partitioners.row_rule import RULES, rows_of, rows_per_shard
from tfps.placement.plan import View
from tfps.recovery.chief.job_record import JobRecord
from tfps.recovery.reading.recorded_values import find_recorded_values
from tfps.runtime.coordinator.resource_names import ResourceNames

RECORD = JobRecord(chief="a:1", workers=1, servers=2, consistency="Asynchronous()")


@pytest.mark.parametrize("kind", RULES.values(), ids=RULES)
@given(data=st.data(), rows=st.integers(1, 40), servers=st.integers(1, 4))
def test_shards_are_joined(kind: Any, data: Any, rows: int, servers: int) -> None:
    """Wherever they lie, and whatever the order in which servers list them."""
    rule = kind(rows, data.draw(st.integers(1, rows)))
    numbered = dict(zip(RULES.values(), RULES, strict=True))[kind], rows, rule.shards
    views: list[dict[str, View]] = [{} for _ in range(servers)]
    for shard in data.draw(st.permutations(range(rule.shards))):
        server = data.draw(st.integers(0, servers - 1))
        path = f"my table/{shard}"
        view = View(path, server, "slab", 0, (rows_per_shard(rule)[shard], 2), "float32", 4)
        view = dataclasses.replace(view, rule=numbered)
        views[server][ResourceNames().unique_name(path)] = view
    whole = np.arange(rows * 2).reshape(rows, 2)
    (value,) = find_recorded_values([dataclasses.replace(RECORD, views=v) for v in views]).values()
    parts = [whole[rows_of(rule, shard)] for shard in range(rule.shards)]
    np.testing.assert_array_equal(value.join(parts), whole)


def test_the_second_of_a_path_has_a_number_and_a_part_of_a_variable_is_no_variable() -> None:
    names = ResourceNames()
    paths = ["a b", "a b", "t/0"]
    rules = [None, None, ("modulo", 4, 2)]
    views = {
        names.unique_name(path): View(path, 0, "slab", 0, (2,), "float32", rule=rule)
        for path, rule in zip(paths, rules, strict=True)
    }
    assert list(find_recorded_values([dataclasses.replace(RECORD, views=views)])) == [
        "a b",
        "a b>2",
    ]
    other = {"variables/t/1": View("t/1", 1, "slab", 0, (2,), "float32", rule=rules[2])}
    records = [dataclasses.replace(RECORD, views=each) for each in (views, other)]
    assert list(find_recorded_values(records)) == ["a b", "a b>2", "t"]
