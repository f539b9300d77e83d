"""The command of a benchmark, and turns that are kept when it is run again."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.journal import TurnJournal
from benchmarks.runner import run
from benchmarks.throughput import Throughput
from tests.messages import raises
from tests.unit.benchmarks.chief_results import RESULTS
from tfps.errors import ConfigError


class PlayedChief:
    """A chief process that has ended with a status."""

    def __init__(self, *, status: int) -> None:
        self.status = status

    def wait(self, timeout_s: float) -> int:
        return self.status

    def kill(self) -> int:
        return self.status

    def report(self, how: str) -> str:
        return f"chief {how}"


def run_command(name: str, *options: str, output: Path, last: int = -1) -> tuple[list[Any], Result]:
    """Run a benchmark, whose chiefs return at once until one fails; return what they were asked."""
    asked: list[Any] = []

    def start(*, command: Sequence[str], **_: Any) -> PlayedChief:
        if len(asked) == last:
            return PlayedChief(status=-9)
        order, result = (Path(path) for path in command[-2:])
        asked.append(json.loads(order.read_text())["case"])
        result.write_text(json.dumps(RESULTS[name](asked[-1])))
        return PlayedChief(status=0)

    kind = next(kind for kind in BENCHMARKS if kind.name == name)
    with mock.patch("benchmarks.runner.start_program", start), mock.patch.object(kind, "draw"):
        ran = CliRunner().invoke(main, [name, "--quick", *options, "--output", str(output)])
    return asked, ran


def test_the_list_of_benchmarks_imports_no_tensorflow() -> None:
    code = (
        "import sys\nfrom benchmarks.__main__ import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print('tensorflow' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    for kind in BENCHMARKS:
        assert f"\n  {kind.name} " in ran.stdout
    assert ran.stdout.endswith("False\n")


def test_results_that_cannot_be_written_start_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / "file/results"
    asked, ran = run_command("placement", output=output)
    assert (asked, ran.exit_code) == ([], 1)
    assert ran.output == (
        f"Error: --output: received '{output}': {tmp_path}/file is a file, expected a folder to "
        "write to\n"
    )


def test_without_tf_keras_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    journal = TurnJournal(tmp_path / "turns", is_resumed=False)
    with raises(ConfigError, "tfps[bench]"):
        run(Throughput(), progress=print, log_dir=tmp_path, journal=journal)


def test_a_run_that_was_stopped_goes_on_behind_its_last_turn(tmp_path: Path) -> None:
    three = ("--repetitions", "3")
    stopped, ran = run_command("placement", *three, output=tmp_path, last=1)
    assert (len(stopped), ran.exit_code) == (1, 1)
    rest, ran = run_command("placement", *three, "--resume", output=tmp_path)
    assert (len(rest), ran.exit_code) == (1, 0), ran.output
    assert "turn 2 of 2  10,000 variables on 64 servers" in ran.output
    assert "1 turns were kept from" in " ".join(ran.output.split())
    content = json.loads((tmp_path / "placement.json").read_text())
    assert (content["kept_turns"], content["settings"]["repetitions"]) == (1, 3)
    assert not list((tmp_path / "logs").glob("turns-*")), "what the turns needed is left"
    # Other settings, or nothing to resume.
    assert len(run_command("placement", "--resume", output=tmp_path)[0]) == 2
    assert len(run_command("placement", *three, output=tmp_path)[0]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("batch", ["--batch-size=16", "--batch-size=32"]),
        ("embedding", ["--workers=1", "--workers=2"]),
        ("network", ["--way=whole", "--way=changes"]),
        ("rows", ["--mib=1", "--mib=4"]),
        ("scaling", ["--workers=3", "--workers=3"]),
        ("staleness", ["--optimizer=sgd", "--optimizer=adam"]),
        ("strategies", ["--shape=dense", "--shape=mixed"]),
        ("throughput", ["--model=mlp", "--model=cnn"]),
    ],
)
def test_runs_of_parts_become_one_report(name: str, parts: list[str], tmp_path: Path) -> None:
    count = 0
    for part in parts:
        asked, ran = run_command(name, "--resume", part, output=tmp_path)
        assert ran.exit_code == 0, ran.output
        count += len(asked)
    asked, ran = run_command(name, "--resume", *dict.fromkeys(parts), output=tmp_path)
    assert (asked, ran.exit_code) == ([], 0), ran.output
    assert f"{count} turns were kept" in " ".join(ran.output.split())


def test_another_machine_measures_anew(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    assert TurnJournal(path, is_resumed=False).get_or_measure({"name": "a"}, lambda: 1) == 1
    machine = {"processor": "another", "load_average": [0.0]}
    for load, measured in (([0.0], 2), ([9.0], 3)):
        there = mock.Mock(return_value={**machine, "load_average": load})
        with mock.patch("benchmarks.journal.describe_machine", there):
            journal = TurnJournal(path, is_resumed=True)
            assert journal.get_or_measure({"name": "a"}, partial(int, measured)) == 2


@pytest.mark.rare
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
            stopped.get_or_measure({"name": name}, partial(measure, name))
        if is_torn:
            path.write_text(path.read_text() + '{"turn": {"na')
        for _ in range(2):
            resumed = TurnJournal(path, is_resumed=True)
            results = [
                resumed.get_or_measure({"name": name}, partial(measure, name)) for name in names
            ]
            assert results == [*range(1, len(names) + 1)]
            assert measured == names
            assert resumed.kept >= min(stop, len(names))
