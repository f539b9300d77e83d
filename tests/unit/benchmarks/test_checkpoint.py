"""`python -m benchmarks checkpoint`: cases, what has an aim, the table and the picture."""

from __future__ import annotations

from pathlib import Path

from benchmarks.checkpoint import WAYS, SavingBenchmark
from benchmarks.results import Results
from benchmarks.saving import BESIDE, RESTORE, SAVE, TENSORFLOW, TFPS
from tests.unit.benchmarks.outputs import outputs


def _results() -> Results:
    results = Results()
    for seconds in (3.0, 1.0, 2.0):
        for ps, what, way in [
            *((2, what, way) for way in WAYS for what in (SAVE, RESTORE)),
            (1, RESTORE, TFPS),
            (3, RESTORE, TFPS),
            (2, SAVE, BESIDE),
        ]:
            longer = 2.0 if way == TENSORFLOW else 1.0
            sample = {
                "seconds": longer * seconds,
                "pause_s": 0.01 * seconds,
                "chief_mib": 5.0,
                "server_mib": 70.0,
            }
            results.add(sample, way=way, what=what, ps=ps)
    return results


def test_medians_are_compared(tmp_path: Path) -> None:
    benchmark, results = SavingBenchmark(), _results()
    written = outputs(benchmark, results, tmp_path)
    assert [(bar["value"], bar["holds"]) for bar in written.content["bars"]] == [
        (0.02, True),
        (0.02, True),
        (5.0, True),
        (0.5, True),
        (0.5, True),
    ]
    assert len(written.content["cases"]) == 9
    assert written.content["cases"][0]["seconds"] == {"min": 1.0, "median": 2.0, "max": 3.0}
    assert written.content["settings"]["restored_ps"] == [1, 3]
    assert all(benchmark.row_of(case) in written.text for case in results.cases)


def test_what_was_not_measured_has_no_value() -> None:
    assert {bar.value for bar in SavingBenchmark().bars(Results())} == {None}
