"""`python -m benchmarks recovery`: turns, what has an aim, the tables and the picture."""

from __future__ import annotations

from pathlib import Path

from benchmarks.recovery import JOB, SERVER, TITLES, WITH, WITHOUT, WORKER, RecoveryBenchmark
from benchmarks.results import Results
from tests.unit.benchmarks.answers import AnsweredBench
from tests.unit.benchmarks.outputs import outputs


def test_each_fault_is_measured_in_turn(tmp_path: Path) -> None:
    benchmark = RecoveryBenchmark(repetitions=2)
    bench = AnsweredBench(benchmark, tmp_path)
    results = bench.run()
    # A server is lost before the job starts again from the checkpoint of then.
    assert [case["what"] for case in bench.cases] == [
        *(SERVER, JOB, WORKER, WITH, WITHOUT),
        *(SERVER, JOB, WORKER, WITHOUT, WITH),
    ]
    written = outputs(benchmark, results, tmp_path)
    assert [(bar["value"], bar["aim"], bar["holds"]) for bar in written.content["bars"]] == [
        (4.0, 6.0, True),
        (0.2, 1.0, True),
        (0.2, 1.0, True),
        (2.0, 3.0, True),
        (1.0, 1.05, True),
    ]
    assert all(title in written.text for title in TITLES.values())
    server = written.content["cases"][0]
    assert server["what"] == SERVER
    assert server["restored_s"] == {"min": 3.0, "median": 3.0, "max": 3.0}


def test_what_was_not_measured_has_no_value() -> None:
    assert {bar.value for bar in RecoveryBenchmark().bars(Results())} == {None}
