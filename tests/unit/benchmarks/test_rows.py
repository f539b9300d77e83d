from __future__ import annotations

from pathlib import Path

from benchmarks.results import Results
from benchmarks.rows import Rows, pairs
from tests.unit.benchmarks.outputs import answer, outputs, sample

RATES = {
    ("sgd", 64, False): 20,
    ("sgd", 64, True): 200,
    ("sgd", 256, False): 5,
    ("sgd", 256, True): 150,
    ("adam", 64, False): 10,
    ("adam", 64, True): 50,
}


def results_of(rates: dict[tuple[str, int, bool], int]) -> Results:
    results = Results()
    for factor in (0.98, 1.0, 1.02):
        for (optimizer, mib, by_rows), rate in rates.items():
            measured = answer(sample(factor * rate))
            results.add(measured, optimizer=optimizer, mib=mib, by_rows=by_rows)
    return results


def test_rows_are_compared_with_all_rows_and_sizes_with_each_other(tmp_path: Path) -> None:
    written = outputs(Rows(), results_of(RATES), tmp_path)
    assert [(bar["name"], bar["value"], bar["holds"]) for bar in written.content["bars"]] == [
        ("sgd, 64 MiB: rows of the batch over all rows", 10.0, True),
        ("sgd, 256 MiB: rows of the batch over all rows", 30.0, True),
        ("adam, 64 MiB: rows of the batch over all rows", 5.0, False),
        ("sgd, rows of the batch: 256 MiB over 64 MiB", 0.75, False),
    ]
    cases = written.content["cases"]
    assert [(case["optimizer"], case["mib"], case["by_rows"]) for case in cases] == list(RATES)
    assert list(cases[0])[3:6] == ["steps_per_s", "cpu_ms_per_step", "other_cores"]
    assert "200 (196-204)" in written.text


def test_other_sizes_have_no_aim() -> None:
    results = results_of({("sgd", 3, False): 20, ("sgd", 3, True): 100})
    assert Rows().bars(results) == []
    assert len(pairs(results)) == 1
