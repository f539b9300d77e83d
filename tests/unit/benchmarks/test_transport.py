from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results import Results
from benchmarks.transport import (
    CARRIERS,
    LARGE_BYTES,
    MLP_BYTES,
    Transport,
    echoes,
    ms,
    server_cpu_ms,
    work,
)
from benchmarks.workload import MODELS
from tests.unit.benchmarks.outputs import outputs, sample


@pytest.fixture
def results() -> Results:
    measured = Results()

    def add(row: str, carrier: str, size_bytes: int, exchange_ms: float) -> None:
        exchange = sample(
            1e3 / exchange_ms,
            cpu_ms=2 * exchange_ms,
            worker=1.2 * exchange_ms,
            ps=0.8 * exchange_ms,
        )
        measured.add({"samples": [exchange]}, row=row, carrier=carrier, size_bytes=size_bytes)

    for factor in (0.9, 1.0, 1.1):
        for size in Transport().sizes_bytes:
            for position, carrier in enumerate(CARRIERS):
                add("echo", carrier, size, factor * (1 + size / 1e6) * (1 + position))
        add("adam", "unix", MLP_BYTES, 3.0)
        add("ledger", "unix", MLP_BYTES, 2.0)
        add("echo", "unix", LARGE_BYTES, 100.0)
        add("pass", "unix", LARGE_BYTES, 50.0)
        add("adam", "unix", LARGE_BYTES, 180.0)
    return measured


def test_the_size_of_the_model_is_that_of_its_variables() -> None:
    assert MODELS["mlp"].shapes == [(784, 128), (128,), (128, 10), (10,)]
    assert MLP_BYTES == 4 * (784 * 128 + 128 + 128 * 10 + 10)
    assert len(MODELS["layers"].shapes) == 60
    assert 24e6 < LARGE_BYTES / 4 < 26e6


def test_measurements_of_a_case_are_samples_of_one_exchange(results: Results) -> None:
    case = next(case for case in echoes(results) if case["carrier"] == "unix")
    assert (ms(case).minimum, ms(case).maximum) == pytest.approx((0.9 * 1.004, 1.1 * 1.004))
    assert case.cpu_ms_per_step.median == pytest.approx(2 * ms(case).median)
    assert server_cpu_ms(case).median == pytest.approx(0.8 * ms(case).median)


def test_the_work_of_a_server_stands_from_the_bare_exchange_to_all_of_it(results: Results) -> None:
    cases = work(results, MLP_BYTES)
    assert [case["row"] for case in cases] == ["echo", "ledger", "adam"]
    assert {case["carrier"] for case in cases} == {"unix"}
    assert [ms(case).median for case in cases][1:] == pytest.approx([2.0, 3.0])


def test_a_large_push_is_compared_with_an_echo_and_a_pass_of_adam(results: Results) -> None:
    (bar,) = Transport().bars(results)
    assert bar.value == pytest.approx(180 / 150)
    assert bar.holds
    (unknown,) = Transport().bars(Results())
    assert unknown.value is None


def test_every_case_is_written_once(results: Results, tmp_path: Path) -> None:
    written = outputs(Transport(), results, tmp_path)
    cases = written.content["cases"]
    keys = [(case["row"], case["carrier"], case["size_bytes"]) for case in cases]
    assert len(set(keys)) == len(keys) == len(CARRIERS) * len(Transport().sizes_bytes) + 5
    assert cases[0]["ps_cpu_ms_per_exchange"]["median"] > 0
    assert len(written.content["bars"]) == 1
    assert "+ Adam update  3.00 (3.00-3.00)" in written.text
