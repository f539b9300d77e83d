"""Turns that a benchmark keeps when it is run again: which, in which order, and of which file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.batch import Batch
from benchmarks.benchmark import Benchmark
from benchmarks.embedding import Embeddings
from benchmarks.journal import TurnJournal
from benchmarks.network import NetworkBenchmark
from benchmarks.rows import Rows
from benchmarks.scaling import Scaling
from benchmarks.staleness import Staleness
from benchmarks.strategies import Strategies
from benchmarks.throughput import Throughput
from tests.unit.benchmarks.answers import ANSWERS
from tests.unit.benchmarks.outputs import answer, sample
from tests.unit.benchmarks.test_runner import Demo, run_command
from tfps.errors import TaskFailed


class Chiefs:
    """Answer orders one after another, until one fails."""

    def __init__(self, *, last: int | None = None) -> None:
        self.sizes: list[int] = []
        self._last = last

    def __call__(self, order: Any) -> Any:
        if len(self.sizes) == self._last:
            raise TaskFailed("chief ended with signal 9")
        self.sizes.append(order["case"]["size"])
        return answer(sample(100.0 * len(self.sizes)))


def _bench(*options: str, output: Path, last: int | None = None) -> tuple[Chiefs, Any]:
    """Each run has its files elsewhere."""
    chiefs = Chiefs(last=last)
    return chiefs, run_command(Demo, *options, output=output, chief=chiefs)


def _rates(output: Path) -> dict[int, list[float]]:
    content = json.loads((output / "demo.json").read_text())
    return {
        case["size"]: [each["steps"] / each["seconds"] for each in case["samples"]]
        for case in content["cases"]
    }


def test_a_run_that_was_stopped_goes_on_behind_its_last_turn(tmp_path: Path) -> None:
    stopped, ran = _bench(output=tmp_path, last=4)
    assert (stopped.sizes, ran.exit_code) == ([2, 4, 2, 4], 1)
    rest, ran = _bench("--resume", output=tmp_path)
    assert (rest.sizes, ran.exit_code) == ([2, 4], 0), ran.output
    assert "4 turns were kept from" in " ".join(ran.output.split())
    content = json.loads((tmp_path / "demo.json").read_text())
    assert content["kept_turns"] == 4
    assert _rates(tmp_path) == {2: [100, 300, 100], 4: [200, 400, 200]}


def test_runs_of_parts_become_one_report(tmp_path: Path) -> None:
    for size in ("2", "4"):
        part, _ = _bench("--sizes", size, "--resume", output=tmp_path)
        assert part.sizes == [int(size)] * 3
    whole, _ = _bench("--resume", output=tmp_path)
    assert whole.sizes == []
    assert list(_rates(tmp_path)) == [2, 4]


@pytest.mark.quick("network*", "rows*")
@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (Batch, ["--batch-size=16", "--batch-size=32"]),
        (Embeddings, ["--workers=1", "--workers=2"]),
        (NetworkBenchmark, ["--way=whole", "--way=changes"]),
        (Rows, ["--mib=1", "--mib=4"]),
        (Scaling, ["--workers=3", "--workers=3"]),
        (Staleness, ["--optimizer=sgd", "--optimizer=adam"]),
        (Strategies, ["--shape=dense", "--shape=mixed"]),
        (Throughput, ["--model=mlp", "--model=cnn"]),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_options_that_choose_turns_join_parts(
    kind: type[Benchmark], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "draw", lambda *_: None)
    asked = list[Any]()

    def chief(order: Any) -> Any:
        asked.append(order)
        return ANSWERS[kind.name](order["case"])

    for part in parts:
        ran = run_command(kind, "--quick", "--resume", part, output=tmp_path, chief=chief)
        assert ran.exit_code == 0, ran.output
    count = len(asked)
    both = [*dict.fromkeys(parts)]
    ran = run_command(kind, "--quick", "--resume", *both, output=tmp_path, chief=chief)
    assert ran.exit_code == 0, ran.output
    assert len(asked) == count > 0
    assert f"{count} turns were kept" in " ".join(ran.output.split())


def test_other_settings_and_a_run_that_resumes_none_measure_anew(tmp_path: Path) -> None:
    _bench(output=tmp_path)
    other, _ = _bench("--resume", "--epoch-seconds", "7", output=tmp_path)
    assert len(other.sizes) == 6
    anew, _ = _bench(output=tmp_path)
    assert len(anew.sizes) == 6
    assert "kept_turns" not in json.loads((tmp_path / "demo.json").read_text())


def test_another_machine_measures_anew(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    first = TurnJournal(path, is_resumed=False)
    assert first.answer({"name": "a"}, lambda: 1) == 1
    machine = {"processor": "another", "load_average": [0.0]}
    with mock.patch("benchmarks.journal.describe_machine", return_value=machine):
        there = TurnJournal(path, is_resumed=True)
        assert there.answer({"name": "a"}, lambda: 2) == 2
    busy = {**machine, "load_average": [9.0]}
    with mock.patch("benchmarks.journal.describe_machine", return_value=busy):
        assert TurnJournal(path, is_resumed=True).answer({"name": "a"}, list) == 2


@given(st.lists(st.sampled_from("abc"), max_size=8), st.integers(0, 8), st.booleans())
def test_every_turn_is_measured_once_wherever_a_run_is_stopped(
    names: Sequence[str], stop: int, is_torn: bool
) -> None:
    measured: list[str] = []

    def measure(name: str) -> int:
        measured.append(name)
        return len(measured)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "turns"
        stopped = TurnJournal(path, is_resumed=False)
        for name in names[:stop]:
            stopped.answer({"name": name}, partial(measure, name))
        if is_torn:
            path.write_text(path.read_text() + '{"turn": {"na')
        for _ in range(2):
            resumed = TurnJournal(path, is_resumed=True)
            answers = [resumed.answer({"name": name}, partial(measure, name)) for name in names]
            assert answers == [*range(1, len(names) + 1)]
            assert measured == names
            assert resumed.kept >= min(stop, len(names))
