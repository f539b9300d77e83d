"""The README's examples run, and the commands, files and targets that it names are there."""

from __future__ import annotations

import builtins
import gzip
import lzma
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import tfps
from tfps.cli import main
from tfps.config import JobConfig, load
from tfps.job.bundle import config_path
from tfps.strategy.stats import Stats
from tfps.testing import run_command, watch_leftovers

pytestmark = pytest.mark.timeout(280)

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(
    r"(?:<!-- runnable: (?P<how>[\w ]+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.S
)
BLOCKS = [match.groupdict() for match in BLOCK.finditer(README)]
SUBSET = ROOT / "examples/fashion_mnist/subset"


def _runnable(how: str) -> list[str]:
    return [block["text"] for block in BLOCKS if block["how"] == how]


def _after(diff: str) -> str:
    """What a diff leaves: its new lines and those that stay."""
    return "".join(line[1:] or "\n" for line in diff.splitlines(True) if line[0] != "-")


def _before(diff: str) -> str:
    return "".join(line[1:] or "\n" for line in diff.splitlines(True) if line[0] != "+")


@pytest.fixture
def keras_home(tmp_path: Path) -> Path:
    """A folder where `keras.datasets.fashion_mnist` finds the shipped subset, without a network."""
    folder = tmp_path / "keras/datasets/fashion-mnist"
    folder.mkdir(parents=True)
    for file in SUBSET.glob("*.xz"):
        with gzip.open(folder / f"{file.stem}.gz", "wb", compresslevel=1) as target:
            target.write(lzma.decompress(file.read_bytes()))
    return tmp_path / "keras"


def _commands() -> Iterator[list[str]]:
    """Each command of the shell examples, without comments and leading variables."""
    for block in BLOCKS:
        if block["language"] == "sh":
            for line in block["text"].splitlines():
                words = shlex.split(line.replace("<this repository>", "URL"), comments=True)
                while words and re.match(r"\w+=", words[0]):
                    words.pop(0)
                yield from ([*part] for part in _split(words) if part)


def _split(words: list[str]) -> Iterator[list[str]]:
    while "&&" in words:
        at = words.index("&&")
        yield words[:at]
        words = words[at + 1 :]
    yield words


def test_own_script_and_what_continues_it_run(tmp_path: Path, keras_home: Path) -> None:
    (diff,) = _runnable("own script")
    continued = _runnable("continued")
    assert len(continued) == 11
    script = tmp_path / "train.py"
    script.write_text("\n".join([_after(diff), *continued]))
    with watch_leftovers():
        result = run_command(
            [sys.executable, "-m", "tfps", "run", "--workers", "2", "--ps", "1", script],
            deadline_s=240,
            environment={"TF_CONFIG": None, "KERAS_HOME": str(keras_home)},
            folder=tmp_path,
        )
    shown = result.stdout + result.stderr
    assert result.returncode == 0, shown
    (accuracy,) = re.findall(r"test loss and accuracy: \[[\d.]+, ([\d.]+)\]", shown)
    assert float(accuracy) > 0.75
    (loss,) = re.findall(r"mean loss: ([\d.]+)", shown)
    assert float(loss) < 1
    assert shown.count("norm of the last bias:") == 2
    # 10,000 examples in three epochs, 100 scheduled steps, 6,400 in one epoch twice, in two
    # epochs, and in one four times.
    (updates,) = re.findall(r"(\d+) updates, \(", shown)
    assert int(updates) == 3 * 157 + 100 + 2 * 100 + 2 * 100 + 4 * 100, shown


def test_the_diff_changes_four_things() -> None:
    (diff,) = _runnable("own script")
    before, after = (
        [line.strip() for line in text.splitlines()] for text in (_before(diff), _after(diff))
    )
    assert [line for line in before if line not in after] == []
    assert [line for line in after if line not in before] == [
        "import tfps",
        "strategy = tfps.ParameterServerStrategy()",
        "with strategy.scope():",
    ]


def test_the_local_cluster_runs(tmp_path: Path) -> None:
    (program,) = _runnable("alone")
    with watch_leftovers():
        result = run_command(
            [sys.executable, "-"],
            deadline_s=120,
            environment={"TF_CONFIG": None},
            folder=tmp_path,
            input_text=program,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"worker 1 +127\.0\.0\.1:\d+", result.stdout), result.stdout


def test_every_python_example_is_run() -> None:
    assert all(block["how"] for block in BLOCKS if block["language"] in ("python", "diff"))


def test_commands_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    for name in ("examples", "configs", "docker"):
        Path(name).symlink_to(ROOT / name)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    seen = set()
    for program, *arguments in _commands():
        seen.add(program)
        if program == "tfps":
            name, *rest = arguments
            command = main.get_command(click.Context(main), name)
            assert command is not None, name
            given = command.make_context(name, rest).params
            if "overrides" in given:
                load(config_path(given["config"]), given["overrides"])
        elif program == "make":
            assert arguments[0] in targets
        elif program == "docker":
            assert Path(arguments[arguments.index("-f") + 1]).is_file()
        else:
            assert program in ("git", "cd"), program
    assert {"tfps", "make", "docker"} <= seen
    for options in re.findall(r"^\| `tfps (.*?)` \|", README, re.M):
        assert options.split()[0] in main.list_commands(click.Context(main))


def test_files_exist() -> None:
    names = re.findall(r"`((?:configs|docker|examples|tfps)/[\w./-]+|\.ci/\w+|LICENSE)`", README)
    assert len(names) > 5
    assert [name for name in names if not (ROOT / name).exists() and "NAME" not in name] == []
    assert all((ROOT / path).is_file() for path in re.findall(r"cat (configs/[\w./-]+)", README))
    listed = set(re.findall(r"^More scripts.*?\n\n", README, re.M | re.S)[0].split("`"))
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} <= listed


def test_names_exist() -> None:
    section = README.partition("## What `strategy.stats()` shows")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.M)
    assert {name for row in rows for name in re.findall(r"\w+", row)} == set(
        Stats.__dataclass_fields__
    )
    assert set(re.findall(r"`tfps\.(\w+)", README)) <= set(tfps.__all__)
    for name in re.findall(r"`(\w+Error|ConnectTimeout)`", README):
        assert hasattr(tfps.errors, name) or hasattr(builtins, name), name


def test_sections_and_variables_exist() -> None:
    table = README.partition("| section | decides |\n")[2].partition("\n\n")[0]
    named = {name.strip("[]") for name in re.findall(r"`(.*?)`", table)}
    sections = set(_sections(JobConfig().model_dump()))
    assert sections <= named
    source = "".join(path.read_text() for path in (ROOT / "tfps").rglob("*.py"))
    assert [name for name in re.findall(r"TFPS_\w+", README) if f'"{name}"' not in source] == []


def _sections(values: dict[str, Any], parent: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield f"{parent}{name}"
            yield from _sections(value, f"{parent}{name}.")


def test_no_host_is_named_for_the_repository() -> None:
    assert re.findall(r"git clone (\S+)", README) == ["<this"]
    assert "OWNER" not in README
