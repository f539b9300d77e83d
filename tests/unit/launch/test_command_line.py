"""The command `tfps`: its list of commands costs no import of TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tfps.cli import COMMANDS, main


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
    assert "run " in result.stdout
    assert " serve " not in result.stdout


def test_run_help_imports_no_tensorflow() -> None:
    code = (
        "import sys\nfrom tfps.cli import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\nprint('tensorflow' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "SCRIPT [ARGS]..." in result.stdout
    assert result.stdout.endswith("False\n")


def test_version_and_unknown_commands() -> None:
    assert "tfps" in CliRunner().invoke(main, ["--version"]).output
    result = CliRunner().invoke(main, ["rum"])
    assert result.exit_code == 2
    assert "No such command 'rum'" in result.output
    assert COMMANDS["serve"][3], "serve is no command for people"


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
        ("{", "TF_CONFIG: is no JSON"),
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
    assert "--workers and --ps have no effect" in result.output
