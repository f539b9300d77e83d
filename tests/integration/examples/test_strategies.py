"""Each script of examples/strategies trains the same job, started as its first lines say."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks.slow_script import parse_steps
from benchmarks.strategy_rows import ROWS, on_each_worker
from tests.harness.command import run_command
from tests.harness.leaks import assert_no_leaks

pytestmark = pytest.mark.timeout(280)

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples/strategies"
MODES = [row.mode for row in ROWS.values() if row.mode]
# A script is one, and what else it takes.
STARTS = {
    **{row.script.removesuffix(".py"): [] for row in ROWS.values()},
    **{f"tfps-{mode}": ["--mode", mode] for mode in MODES},
    **{f"{name}-mixed": ["--model", "mixed"] for name in ("one_process", "tfps_parameter_servers")},
    "tfps_parameter_servers-large": ["--model", "large", "--table-rows", "20000"],
}
# Examples of two epochs, and the least accuracy then; guessing gives 0.1 and 0.5.
SIZES = {"dense": (1280, 0.3), "mixed": (6400, 0.6), "large": (1280, None)}
LONGEST_LINES = 80


def script_of(start: str) -> Path:
    name = start.removesuffix("-mixed").removesuffix("-large")
    return FOLDER / f"{'tfps_parameter_servers' if name.startswith('tfps-') else name}.py"


def command_of(script: Path) -> list[str]:
    """The command in the script's first lines, with this Python and without `--mode`."""
    (line,) = re.findall(rf"^(?:python|tfps) .*{script.name}.*$", script.read_text(), re.M)
    program, *arguments = shlex.split(line)
    if "--mode" in arguments:
        del arguments[arguments.index("--mode") :]
    return [sys.executable, *(["-m", "tfps"] if program == "tfps" else []), *arguments]


@pytest.mark.rare
@pytest.mark.parametrize("start", STARTS)
def test_a_script_trains_the_job_and_reports(start: str, tmp_path: Path) -> None:
    script, report = script_of(start), tmp_path / "report.json"
    model = "mixed" if "tables" in start else start.rpartition("-")[2]
    examples, least_accuracy = SIZES.get(model, SIZES["dense"])
    small = ["--examples", str(examples), "--epochs", "2"]
    own = [*STARTS[start], *small, "--report-file", str(report)]
    with assert_no_leaks():
        result = run_command(
            [*command_of(script), *own],
            deadline_s=240,
            environment={"TF_CONFIG": None},
            folder=ROOT,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    numbers = json.loads(report.read_text())
    assert (numbers["examples"], len(numbers["epochs_s"])) == (examples, 2)
    if least_accuracy is None:  # no process could hold its weights to test them
        assert numbers["accuracies"] == []
        assert re.search(r"[\d,]+ examples/s", result.stdout), result.stdout
    else:
        assert len(numbers["accuracies"]) == 2
        assert numbers["accuracies"][-1] > least_accuracy
        assert re.search(r"test accuracy [\d.]+, [\d,]+ examples/s", result.stdout), result.stdout


@pytest.mark.rare
def test_steps_are_noted(tmp_path: Path) -> None:
    options = ["--examples", "640", "--epochs", "1", "--steps-folder", str(tmp_path)]
    result = run_command([sys.executable, FOLDER / "one_process.py", *options], deadline_s=120)
    assert result.returncode == 0, result.stderr
    (times,) = parse_steps([path.name for path in tmp_path.iterdir()]).values()
    assert len(times) == 10


@pytest.mark.rare
def test_a_worker_that_fails_ends_the_others_and_its_status_is_that_of_all(tmp_path: Path) -> None:
    script = tmp_path / "one_fails.py"
    script.write_text(
        "import json, os, sys, time\n"
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        "sys.exit(7) if index else time.sleep(600)\n"
    )
    starter, *arguments = on_each_worker(FOLDER / "a.py", 2, 1)[1:-1]
    result = run_command([sys.executable, starter, *arguments, script], deadline_s=60)
    assert result.returncode == 7


@pytest.mark.parametrize("script", sorted({row.script for row in ROWS.values()}))
def test_a_script_is_short(script: str) -> None:
    assert len((FOLDER / script).read_text().splitlines()) < LONGEST_LINES


def test_every_script_of_the_folder_is_listed() -> None:
    page = (ROOT / "docs/start/examples.md").read_text()
    listed = set(re.findall(r"`strategies/(\w+)\.py`", page))
    assert listed == {path.stem for path in FOLDER.glob("*.py")}


@pytest.mark.rare
def test_the_dense_model_is_that_of_the_reference_job() -> None:
    program = (
        "import sys, keras; sys.path[:0] = sys.argv[1:]\n"
        "from fashion_mnist.model import build; from reference_job import Job\n"
        "from fashion_mnist.settings import CnnSizes\n"
        "configs = [[layer.get_config() for layer in model.layers] for model in\n"
        "           (build('cnn', **CnnSizes().model_dump()), Job().build(keras))]\n"
        "for config in sum(configs, []): del config['name']\n"
        "assert configs[0] == configs[1], configs\n"
    )
    folders = [FOLDER, FOLDER.parent]
    result = run_command([sys.executable, "-c", program, *folders], deadline_s=120)
    assert result.returncode == 0, result.stderr
