from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results import Results
from benchmarks.scaling import Scaling, server_cpu_ms_per_push, share_kept
from tests.unit.benchmarks.outputs import answer, outputs, sample


def results_of(*workers: int) -> Results:
    results = Results()
    for factor in (0.98, 1.0, 1.02):
        for count in workers:
            rate, cpu_ms = (20, 0.9) if count == 1 else (288, 0.6)
            results.add(answer(sample(factor * rate, worker=1.0, ps=cpu_ms)), workers=count, ps=2)
    return results


def test_the_share_is_of_what_the_workers_would_do_alone() -> None:
    results = results_of(16, 1)
    one, many = Scaling().cases(results)
    assert (one["workers"], many["workers"]) == (1, 16)
    assert share_kept(results, one) == pytest.approx(1.0)
    assert share_kept(results, many) == pytest.approx(288 / 320)
    # A push is a message to one server.
    assert server_cpu_ms_per_push(many).median == pytest.approx(0.3)


def test_the_share_is_a_gain_and_the_cpu_a_cost(tmp_path: Path) -> None:
    written = outputs(Scaling(), results_of(16, 1), tmp_path)
    kept, cost = written.content["bars"]
    assert (kept["value"], kept["aim"], kept["holds"]) == (0.9, 0.95, False)
    assert (cost["value"], cost["aim"], cost["holds"]) == (0.3, 0.5, True)
    assert [case["workers"] for case in written.content["cases"]] == [1, 16]
    assert "288 (282-294)" in written.text


def test_without_one_worker_nothing_is_compared() -> None:
    results = results_of(16)
    assert share_kept(results, results.cases[0]) is None
    assert [bar.holds for bar in Scaling().bars(results)] == [None, True]
