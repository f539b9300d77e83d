from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from tfps.bench.transport.benchmark import Transport, _Site
from tfps.bench.transport.plot import write_plot
from tfps.bench.transport.results import CARRIERS, MLP_BYTES, TransportResults, size_text
from tfps.bench.transport.table import tables
from tfps.bench.workload import MODELS


def entry(row: str, carrier: str, size_bytes: int, ms: float) -> dict[str, Any]:
    """What a chief answers for one measurement of 100 exchanges."""
    sample = {
        "steps": 100,
        "seconds": 0.1 * ms,
        "cpu_seconds": 0.2 * ms,
        "other_cpu_seconds": 0.0,
        "group_cpu_seconds": {"worker": 0.12 * ms, "ps": 0.08 * ms},
    }
    return {"row": row, "carrier": carrier, "size_bytes": size_bytes, "sample": sample}


@pytest.fixture
def results() -> TransportResults:
    measured = TransportResults()
    for factor in (0.9, 1.0, 1.1):
        turn = [
            entry("echo", carrier, size, factor * (1 + size / 1e6) * (1 + position))
            for size in Transport().sizes_bytes
            for position, carrier in enumerate(CARRIERS)
        ]
        measured.add(turn)
        measured.add([entry("adam", "unix", MLP_BYTES, 3.0), entry("ledger", "unix", MLP_BYTES, 2)])
    return measured


def test_the_size_of_the_model_is_that_of_its_variables() -> None:
    assert MODELS["mlp"].shapes == [(784, 128), (128,), (128, 10), (10,)]
    assert MLP_BYTES == 4 * (784 * 128 + 128 + 128 * 10 + 10)
    assert len(MODELS["layers"].shapes) == 60


def test_sizes_are_in_powers_of_ten() -> None:
    assert [size_text(size) for size in (4_000, MLP_BYTES, 16_000_000)] == [
        "4 KB",
        "407 KB",
        "16 MB",
    ]


def test_measurements_of_a_case_are_samples_of_one_exchange(results: TransportResults) -> None:
    case = next(case for case in results.echoes if case.carrier == "unix")
    assert (case.ms.minimum, case.ms.maximum) == pytest.approx((0.9 * 1.004, 1.1 * 1.004))
    assert case.cpu_ms_per_step.median == pytest.approx(2 * case.ms.median)
    assert case.group_cpu_ms("ps").median == pytest.approx(0.8 * case.ms.median)


def test_the_work_of_a_server_stands_from_the_bare_exchange_to_all_of_it(
    results: TransportResults,
) -> None:
    assert [case.row for case in results.steps] == ["echo", "ledger", "adam"]
    assert {case.carrier for case in results.steps} == {"unix"}
    assert [case.ms.median for case in results.steps][1:] == pytest.approx([2.0, 3.0])


def test_the_report_holds_every_case_once(results: TransportResults, tmp_path: Path) -> None:
    content = json.loads(results.report(Transport().as_json()).write(tmp_path).read_text())
    keys = [(case["row"], case["carrier"], case["size_bytes"]) for case in content["cases"]]
    assert len(set(keys)) == len(keys) == len(CARRIERS) * len(Transport().sizes_bytes) + 2
    assert content["cases"][0]["ps_cpu_ms_per_exchange"]["median"] > 0
    assert content["bars"] == []


def test_the_tables_fit_an_ordinary_terminal(results: TransportResults) -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(tables(results))
    text = output.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "+ Adam update  3.00 (3.00-3.00)" in text


def test_the_plot_is_a_picture(results: TransportResults, tmp_path: Path) -> None:
    with Image.open(write_plot(results, tmp_path / "transport.png")) as picture:
        assert picture.width > 1500
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10


def test_a_chief_understands_what_it_is_ordered() -> None:
    from tfps.bench.transport.turn import TransportOrder

    cluster: Any = SimpleNamespace(
        spec=SimpleNamespace(tasks=lambda role: [(role, 0, "")]), pid=lambda *_: 7
    )
    order = TransportOrder(**_Site(False, {}, cluster).turn(Transport()).order)
    assert order.ledger
    assert order.groups == {"worker": [7], "ps": [7]}
