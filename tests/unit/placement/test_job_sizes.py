"""A job's sizes: sums over what a forecast has, tables apart from the rest."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from tfps.partitioners import FixedShardsPartitioner
from tfps.placement.division import divide_variables
from tfps.placement.forecast import PROCESS_BYTES, Forecast, PlannedVariable
from tfps.placement.job_sizes import JobSizes
from tfps.placement.policy import LeastLoaded
from tfps.placement.step_rows import with_step_rows

KERNEL = PlannedVariable("dense/kernel", (100, 10), "float32", is_pulled=True, is_trained=True)
TABLE = PlannedVariable("words/embeddings", (1000, 4), "float32", is_pulled=True, is_trained=True)


def _sizes(rows: int, *, shards: int = 1, workers: int = 2) -> JobSizes:
    momentum = PlannedVariable("sgd/kernel_momentum", KERNEL.shape, "float32", owner=0)
    accumulator = PlannedVariable("sgd/words_momentum", TABLE.shape, "float32", owner=1)
    count = PlannedVariable("sgd/iteration", (), "int64", moved_beside=0)
    wanted = [KERNEL, TABLE, momentum, accumulator, count]
    parts = divide_variables(wanted, FixedShardsPartitioner(shards), servers=2)
    parts = with_step_rows(parts, {TABLE.path: rows}, least_bytes=0)
    forecast = Forecast.from_variables(parts, servers=2, placement=LeastLoaded())
    return JobSizes.from_forecast(forecast, workers=workers, period_steps=16)


@given(rows=st.integers(0, 2000), shards=st.integers(1, 4), workers=st.integers(1, 8))
def test_tables_are_told_from_the_rest_however_they_are_divided(
    rows: int, shards: int, workers: int
) -> None:
    sizes = _sizes(rows, shards=shards, workers=workers)
    assert (sizes.dense_bytes, sizes.gradient_bytes, sizes.slot_bytes) == (4000, 4000, 4008)
    assert (sizes.table_bytes, sizes.table_slot_bytes) == (16_000, 16_000)
    assert sizes.state_bytes == 4000 + 4008 + 2 * 16_000
    assert (sizes.largest_table_bytes, sizes.largest_bytes) == (16_000, 32_000)
    # A row more on each shard at the most, and no more rows than there are.
    exact = 16 * min(rows, 1000)
    assert exact <= sizes.row_bytes <= min(16_000, exact + 16 * shards)
    assert sizes.step_bytes == 2 * (4000 + sizes.row_bytes)
    assert sizes.server_bytes > PROCESS_BYTES + sizes.state_bytes / 2
    assert sizes.round_server_bytes >= sizes.server_bytes


def test_messages_hold_rows_and_so_do_the_sums_of_rounds() -> None:
    wanted = with_step_rows([TABLE], {TABLE.path: 10}, least_bytes=0)
    forecast = Forecast.from_variables(wanted, servers=1, placement=LeastLoaded())
    (plain,), (in_rounds,) = (
        forecast.memory_bytes_per_server(workers=3, has_rounds=has_rounds)
        for has_rounds in (False, True)
    )
    assert plain == PROCESS_BYTES + 16_000 + 3 * 2 * 160
    assert in_rounds == plain + 3 * 160
    (whole,) = forecast.with_whole_tables().memory_bytes_per_server(workers=3, has_rounds=False)
    assert whole == PROCESS_BYTES + 16_000 + 3 * 2 * 16_000


def test_small_tables_travel_as_a_whole_and_others_are_not_touched() -> None:
    found = with_step_rows([KERNEL, TABLE], {TABLE.path: 10}, least_bytes=16_001)
    assert found == [KERNEL, TABLE]
    kernel, table = with_step_rows([KERNEL, TABLE], {TABLE.path: 10}, least_bytes=16_000)
    assert (kernel, table.rows_per_step) == (KERNEL, 10)
