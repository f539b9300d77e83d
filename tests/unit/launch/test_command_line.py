"""The command `tfps`: its list of commands costs no import of TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

import tfps
from tfps.cli import COMMANDS, main
from tfps.tested_versions import format_known_range


def test_help_imports_no_command() -> None:
    code = (
        "import sys\nfrom tfps.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('tensorflow', 'keras', 'tfps.launch') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.endswith("\n[]\n")
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout


def test_the_help_of_a_command_imports_no_tensorflow() -> None:
    code = (
        "import sys\nfrom tfps.cli import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
        "print('tensorflow' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "SCRIPT [ARGS]..." in result.stdout
    assert result.stdout.endswith("False\n")


def test_the_versions_cost_no_import_of_tensorflow() -> None:
    code = (
        "import sys\nfrom tfps.cli import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    versions = {name: metadata.version(name) for name in ("tensorflow", "keras")}
    assert result.stdout == (
        f"tfps {tfps.__version__} (TensorFlow {versions['tensorflow']}, "
        f"Keras {versions['keras']}; tested with TensorFlow {format_known_range('tensorflow')} and "
        f"Keras {format_known_range('keras')})\n[]\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'?"),
        (["srve"], "No such command 'srve'. Did you mean 'serve'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (
            ["run", "--worker", "2", __file__],
            "No such option '--worker'. (Did you mean one of: '--min-workers', '--workers'?)",
        ),
        (["run", "--epochs", "2", __file__], "No such option '--epochs'."),
        (["train", "--sett", "a=b"], "No such option '--sett'. Did you mean '--set'?"),
    ],
    ids=["command", "short command", "no command", "option", "other option", "option of train"],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(
    arguments: list[str], words: str
) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_what_follows_the_script_is_the_scripts(separator: list[str]) -> None:
    arguments = ["--worker", "2", "-h", "--log-dir=logs", "--", "x"]
    with mock.patch("tfps.launch.run.run", return_value=0) as run:
        with mock.patch("tfps.launch.exit.end_process") as end_process:
            CliRunner().invoke(main, ["run", "--ps", "3", *separator, __file__, *arguments])
    assert end_process.call_args.args == (0,)
    assert run.call_args.args == (__file__, tuple(arguments))
    given = {"workers": None, "ps": 3, "log_dir": None, "fault_tolerance": None}
    assert run.call_args.kwargs == given


@pytest.mark.parametrize("name", ["run", "train"])
def test_examples_have_lines_of_their_own(name: str) -> None:
    lines = CliRunner().invoke(main, [name, "--help"]).output.splitlines()
    begin = lines.index("  Examples:")
    assert all(line.startswith(f"    tfps {name}") for line in lines[begin + 1 :])
    assert len(lines) > begin + 2


def test_a_log_folder_that_cannot_be_written_starts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with mock.patch("tfps.launch.run.run") as run, mock.patch("tfps.launch.exit.end_process"):
        result = CliRunner().invoke(main, ["run", "--log-dir", str(file / "logs"), __file__])
    assert not run.called
    assert result.exit_code == 1
    assert result.output == (
        f"Error: --log-dir: received '{file}/logs': {file} is a file, expected a folder to write "
        "to\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "Missing argument 'SCRIPT'"),
        (["run", "no-such-file.py"], "does not exist"),
        (["run", "--workers", "0", __file__], "not in the range"),
        (["run", "--workers", "two", __file__], "not a valid integer"),
    ],
)
def test_mistakes_in_arguments(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "TF_CONFIG: received invalid JSON"),
        ('{"cluster": {"ps": ["a"]}, "task": {"type": "x", "index": 0}}', "has 4 mistakes"),
    ],
)
def test_a_wrong_tf_config(
    config: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise AssertionError")
    monkeypatch.setenv("TF_CONFIG", config)
    result = CliRunner().invoke(main, ["run", str(script)])
    assert result.exit_code == 1
    assert words in result.output


def test_counts_have_no_place_beside_tf_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise AssertionError")
    monkeypatch.setenv("TF_CONFIG", "{}")
    result = CliRunner().invoke(main, ["run", "--ps", "1", str(script)])
    assert result.exit_code == 1
    assert "remove --workers, --ps, --restarts and --min-workers" in result.output


def test_a_result_that_cannot_be_written_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    events = str(tmp_path / "file/results/events.jsonl")
    command = ["supervise", "--events", events, "--", "no-such-program"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert result.output == (
        f"Error: --events: received '{tmp_path}/file/results': {tmp_path}/file is a file, expected "
        "a folder to write to\n"
    )
