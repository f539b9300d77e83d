"""Advice: what is said of sizes, and what must hold of any sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tfps.bridge.variables.shards import WHOLE_BYTES
from tfps.placement import measured
from tfps.placement.advice import MemoryLimits, advise, sizes_of_strategies
from tfps.placement.forecast import PROCESS_BYTES
from tfps.placement.job_sizes import JobSizes
from tfps.placement.training_strategy import (
    ALL_REDUCED,
    ASYNCHRONOUS,
    LARGEST_WHOLE_TABLE_BYTES,
    LAYERS,
    LOCAL_STEPS,
    ONE_PROCESS,
    STRATEGIES,
    TABLES,
)

DATA = Path(__file__).resolve().parents[3] / "docs/benchmarks/data"
GB = 10**9
# A dense model of 100 MB with Adam on two workers, and 26 tables of 20 GB.
DENSE = JobSizes(
    workers=2,
    servers=2,
    dense_bytes=GB // 10,
    gradient_bytes=GB // 10,
    slot_bytes=GB // 5,
    largest_bytes=GB // 4,
    step_bytes=GB // 5,
    server_bytes=PROCESS_BYTES + GB // 3,
    round_server_bytes=PROCESS_BYTES + GB // 2,
    activation_bytes=1000,
)
WIDE = replace(
    DENSE,
    table_bytes=20 * GB,
    table_slot_bytes=20 * GB,
    row_bytes=10**6,
    largest_table_bytes=4 * GB,
    step_bytes=GB // 5 + 2 * 10**6,
    server_bytes=21 * GB,
    round_server_bytes=22 * GB,
)
BYTES = st.integers(0, 100 * GB)


@st.composite
def _sizes(draw: st.DrawFn) -> JobSizes:
    names = ("dense_bytes", "slot_bytes", "table_bytes", "table_slot_bytes", "step_bytes")
    drawn = {name: draw(BYTES) for name in names}
    tables = drawn["table_bytes"]
    server = PROCESS_BYTES + draw(BYTES)
    return JobSizes(
        workers=draw(st.integers(1, 32)),
        servers=draw(st.integers(1, 8)),
        gradient_bytes=draw(st.integers(0, drawn["dense_bytes"])),
        row_bytes=draw(st.integers(0, tables)),
        largest_table_bytes=draw(st.integers(0, tables + drawn["table_slot_bytes"])),
        largest_bytes=draw(st.integers(0, sum(drawn.values()))),
        server_bytes=server,
        round_server_bytes=server + draw(BYTES),
        activation_bytes=draw(st.none() | BYTES),
        period_steps=draw(st.integers(1, 64)),
        **drawn,
    )


LIMITS = st.builds(MemoryLimits, *[st.none() | st.integers(1, 200 * GB)] * 2)
STEPS_MS = st.none() | st.floats(1e-3, 1e5)


@given(sizes=_sizes(), limits=LIMITS, step_ms=STEPS_MS)
def test_what_is_taken_fits_and_something_is_where_anything_does(
    sizes: JobSizes, limits: MemoryLimits, step_ms: float | None
) -> None:
    fitting = [each.strategy for each in sizes_of_strategies(sizes) if each.fits(limits)]
    advice = advise(sizes, limits=limits, step_ms=step_ms)
    assert (advice.strategy is None) == (not fitting)
    assert advice.strategy is None or advice.strategy in fitting
    assert "  " not in advice.why
    assert not advice.why.endswith(".")
    if sizes.workers == 1 and ONE_PROCESS in fitting:
        assert advice.strategy is ONE_PROCESS


@given(sizes=_sizes(), limits=LIMITS)
def test_more_memory_never_takes_a_strategy_away(sizes: JobSizes, limits: MemoryLimits) -> None:
    more = MemoryLimits(
        *(limit and 2 * limit for limit in (limits.worker_bytes, limits.server_bytes))
    )
    for needed in sizes_of_strategies(sizes):
        assert needed.fits(more) or not needed.fits(limits)
        assert needed.fits(MemoryLimits()) == (not needed.obstacle)


@given(sizes=_sizes(), limits=LIMITS, step_ms=st.floats(1e-3, 1e5), factor=st.floats(1, 100))
def test_longer_steps_never_speak_for_one_process(
    sizes: JobSizes, limits: MemoryLimits, step_ms: float, factor: float
) -> None:
    shorter, longer = (
        advise(sizes, limits=limits, step_ms=ms).strategy for ms in (step_ms, factor * step_ms)
    )
    assert longer is not ONE_PROCESS or shorter in (ONE_PROCESS, LOCAL_STEPS)


@given(sizes=_sizes())
def test_a_task_holds_a_process_at_least_and_what_it_moves_is_no_less_than_nothing(
    sizes: JobSizes,
) -> None:
    for needed in sizes_of_strategies(sizes):
        assert needed.task_bytes >= PROCESS_BYTES
        assert needed.step_bytes >= 0
        assert (needed.server_bytes is None) == (needed.strategy.server_bytes is None)
    assert len({strategy.title for strategy in STRATEGIES}) == len(STRATEGIES)


def test_numbers_of_a_dense_model() -> None:
    found = {each.strategy: each for each in sizes_of_strategies(DENSE)}
    assert found[ONE_PROCESS].task_bytes == PROCESS_BYTES + 4 * GB // 10
    assert found[ONE_PROCESS].step_bytes == 0
    # A ring of two: each sends and receives half a gradient twice.
    assert found[ALL_REDUCED].step_bytes == 2 * GB // 10
    assert found[ASYNCHRONOUS].task_bytes == PROCESS_BYTES + 2 * GB // 10
    assert found[ASYNCHRONOUS].step_bytes == GB // 5
    assert found[LOCAL_STEPS].step_bytes == 2 * GB // 10 // 16
    assert found[LAYERS].task_bytes == PROCESS_BYTES + GB // 4  # the largest variable, not half
    assert found[LAYERS].step_bytes == 2 * 1000
    assert found[TABLES].obstacle == "no large tables"


def test_one_process_until_steps_are_long() -> None:
    advice = advise(DENSE)
    assert advice.strategy is ONE_PROCESS
    assert "2 workers are faster where a step computes for more than 60 ms" in advice.why
    assert advise(DENSE, step_ms=10).strategy is ONE_PROCESS
    assert advise(DENSE, step_ms=100).strategy is ASYNCHRONOUS
    assert "one worker with a server took 0.5" in advise(replace(DENSE, workers=1)).why


def test_local_steps_where_an_exchange_is_longer_than_a_step() -> None:
    many = replace(DENSE, workers=16)
    advice = advise(many, step_ms=10)
    assert advice.strategy is LOCAL_STEPS
    assert "60 ms, longer than a step, and workers exchange once in 16" in advice.why
    # Tables as large as these no worker may hold.
    assert advise(replace(WIDE, workers=16), step_ms=10).strategy is ASYNCHRONOUS


def test_servers_where_a_task_is_too_small() -> None:
    limits = MemoryLimits(worker_bytes=16 * GB, server_bytes=32 * GB)
    advice = advise(WIDE, limits=limits)
    assert advice.strategy is ASYNCHRONOUS
    assert advice.why.startswith("40.3 GB of state are too much for a task; servers hold them")
    half = MemoryLimits(worker_bytes=GB * 8 // 10)
    assert advise(DENSE, limits=half).strategy is ASYNCHRONOUS
    assert "servers hold what the optimizer keeps" in advise(DENSE, limits=half).why


def test_what_is_left_where_servers_are_too_small() -> None:
    small_servers = MemoryLimits(worker_bytes=30 * GB, server_bytes=GB)
    assert advise(WIDE, limits=small_servers).strategy is TABLES
    none = MemoryLimits(server_bytes=PROCESS_BYTES)
    assert advise(DENSE, limits=none, step_ms=1000).strategy is ALL_REDUCED
    only_one = MemoryLimits(worker_bytes=PROCESS_BYTES + 45 * GB // 100, server_bytes=1)
    assert advise(DENSE, limits=only_one, step_ms=1000).strategy is ONE_PROCESS


def test_nothing_fits() -> None:
    advice = advise(WIDE, limits=MemoryLimits(GB // 2, GB // 2))
    assert advice.strategy is None
    assert "tfps asynchronous, bounded needs least, 738.9 MB in a task and 21.0 GB" in advice.why


def test_a_worker_may_hold_as_much_of_a_table_as_the_runtime_says() -> None:
    assert LARGEST_WHOLE_TABLE_BYTES == WHOLE_BYTES


def _case(report: str, **axes: Any) -> Any:
    cases = json.loads((DATA / f"{report}.json").read_text())["cases"]
    (found,) = (case for case in cases if all(case[name] == axes[name] for name in axes))
    return found


@pytest.mark.parametrize("size_bytes", [407_080, 99_606_568])
def test_an_exchange_takes_what_was_measured(size_bytes: int) -> None:
    case = _case("transport", row="adam", size_bytes=size_bytes)
    expected = case["ms_per_exchange"]["median"]
    assert measured.push_ms(size_bytes) == pytest.approx(expected, rel=0.05)


def test_shares_are_those_that_were_measured() -> None:
    case = _case("scaling", workers=16)
    expected = case["server_cpu_ms_per_push"]["median"]
    assert pytest.approx(expected, rel=0.01) == measured.SERVER_MS_PER_PUSH
    place = {"model": "mlp", "workers": 1, "row": "tfps_fit", "steps_per_execution": 50}
    expected = _case("throughput", **place)["ratio_to_single_fit"]
    assert pytest.approx(expected, rel=0.01) == measured.SHARE_OF_ONE_PROCESS
