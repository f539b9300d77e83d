"""Variables as shards: nothing is lost, and slots lie beside their shards."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from tfps.partitioners import Balanced, MinSizePartitioner, RowShuffle, Whole
from tfps.placement.division import divide_variables
from tfps.placement.forecast import Forecast, PlannedVariable, imbalance
from tfps.placement.policy import LeastLoaded


def _program(shapes: list[tuple[int, ...]]) -> list[PlannedVariable]:
    """A count, weights, and for each a slot of its shape and one of another."""
    count = PlannedVariable("iteration", (), "int64", moved_beside=1)
    weights = [
        PlannedVariable(f"layer_{k}/kernel", shape, "float32", is_pulled=True, is_trained=True)
        for k, shape in enumerate(shapes)
    ]
    slots = [
        PlannedVariable(f"slot_{k}_{kind}", slot_shape, "float32", owner=k + 1)
        for k, shape in enumerate(shapes)
        for kind, slot_shape in (("momentum", shape), ("row", shape[:1]))
    ]
    return [count, *weights, *slots]


SHAPES = st.lists(st.tuples(st.integers(1, 60), st.integers(2, 9)), min_size=1, max_size=8)
PARTITIONERS = st.sampled_from(
    [Whole(), RowShuffle(), Balanced(min_shard_bytes=64), MinSizePartitioner(64)]
)


@given(shapes=SHAPES, partitioner=PARTITIONERS, servers=st.integers(1, 5))
def test_nothing_is_lost_and_slots_lie_beside_their_shards(
    shapes: list[tuple[int, ...]], partitioner: Balanced, servers: int
) -> None:
    wanted = _program(shapes)
    shards = divide_variables(wanted, partitioner, servers=servers)
    assert sum(s.size_bytes for s in shards) == sum(w.size_bytes for w in wanted)
    assert len({s.path for s in shards}) == len(shards)
    for shard in shards:
        if shard.owner is not None and len(shard.shape) == 2:
            owner = shards[shard.owner]
            assert owner.shape == shard.shape
            assert owner.is_trained
    forecast = Forecast.from_variables(shards, servers=servers, placement=LeastLoaded())
    assert sum(forecast.bytes_per_server) == sum(w.size_bytes for w in wanted)
    assert sum(forecast.step_bytes_per_server) == sum(w.step_bytes for w in wanted)


def test_rows_that_a_step_asks_for_come_from_all_shards() -> None:
    table = PlannedVariable(
        "table", (1000, 4), "float32", is_pulled=True, is_trained=True, rows_per_step=100
    )
    assert table.step_bytes == 2 * 100 * 4 * 4
    shards = divide_variables([table], RowShuffle(), servers=4)
    assert [shard.rows_per_step for shard in shards] == [25] * 4
    forecast = Forecast.from_variables(shards, servers=4, placement=LeastLoaded())
    assert imbalance(forecast.step_bytes_per_server) == 1.0


def test_a_frozen_table_is_divided_and_pulled_when_a_worker_joins() -> None:
    table = PlannedVariable("table", (1000, 4), "float32", is_pulled=True, is_frozen=True)
    shards = divide_variables([table], RowShuffle(), servers=4)
    assert [shard.path for shard in shards] == [f"table/{k}" for k in range(4)]
    assert sum(shard.pull_bytes for shard in shards) == table.size_bytes
    assert sum(shard.step_bytes for shard in shards) == 0
    rows = replace(table, rows_per_step=100)
    assert rows.step_bytes == 100 * 4 * 4


def test_a_large_variable_among_small_ones_fills_all_servers_alike() -> None:
    wanted = _program([(4000, 9), (10, 9), (20, 9), (5, 9)])
    whole = Forecast.from_variables(wanted, servers=4, placement=LeastLoaded())
    shards = divide_variables(wanted, Balanced(min_shard_bytes=1000), servers=4)
    balanced = Forecast.from_variables(shards, servers=4, placement=LeastLoaded())
    assert imbalance(whole.bytes_per_server) > 3
    # What Adafactor-like slots of another shape take lies with the first shard.
    assert imbalance(balanced.bytes_per_server) < 1.2
