"""The examples of the README and of docs/ run, and the names in the pages exist."""

from __future__ import annotations

import builtins
import gzip
import json
import lzma
import re
import sys
from pathlib import Path

import click
import pytest

import tfps
from benchmarks.__main__ import main as benchmarks
from tests.harness.command import run_command
from tests.harness.leaks import assert_no_leaks
from tests.integration.project import pages
from tests.integration.project.pages import ROOT
from tests.integration.terminal import run_in_terminal
from tfps.cli import main
from tfps.config import load
from tfps.config.bundle import config_path

pytestmark = pytest.mark.timeout(280)

README = pages.text_of("README.md")
PAGES = pages.everything()
BLOCKS = pages.blocks()
SUBSET = ROOT / "examples/fashion_mnist/subset"
LONGEST_README_LINES = 200
# Behind the script of the README: the blocks of each page, in a copy of its names, so that no page
# needs another one.
GO_ON = """
import pathlib
for page in sys.argv[1:]:
    print("page:", page, flush=True)
    exec(compile(pathlib.Path(page).read_text(), page, "exec"), dict(globals()))
print("all updates:", strategy.stats().updates_applied)
"""
# In `make test`: the notebook, an example and the reference job run as TensorFlow optimizes them,
# with inputs that it tunes.
QUICKLY = f"""
sys.path.append({str(ROOT)!r})
from tests import quickly
quickly.leave_graphs_as_traced()
quickly.leave_inputs_untuned()
"""

# What `make test` leaves out, with how many epochs of 6,400 examples it trains: other optimizers,
# and other inputs.
LEFT_TO_TEST_ALL = {"stale-gradients.py": 3, "data.py": 4}


@pytest.fixture
def keras_home(tmp_path: Path) -> Path:
    """A folder where `keras.datasets.fashion_mnist` finds the shipped subset, without a network."""
    folder = tmp_path / "keras/datasets/fashion-mnist"
    folder.mkdir(parents=True)
    for file in SUBSET.glob("*.xz"):
        with gzip.open(folder / f"{file.stem}.gz", "wb", compresslevel=1) as target:
            target.write(lzma.decompress(file.read_bytes()))
    return tmp_path / "keras"


@pytest.mark.timeout(300)
def test_own_script_and_the_pages_that_continue_it_run(
    tmp_path: Path, keras_home: Path, pytestconfig: pytest.Config
) -> None:
    (own,) = pages.runnable("own script")
    script = tmp_path / "train.py"
    quickly = pytestconfig.getoption("quickly")
    first = QUICKLY if quickly else ""
    script.write_text(f"import sys\n{first}{pages.after(own.text)}{GO_ON}")
    continued: dict[str, list[str]] = {}
    for block in pages.runnable("continued"):
        continued.setdefault(f"{block.page.stem}.py", []).append(block.text)
    left_out = LEFT_TO_TEST_ALL if quickly else {}
    for name in left_out:
        del continued[name]
    assert len(continued) > 8
    for name, texts in continued.items():
        (tmp_path / name).write_text("\n".join(texts))
    with assert_no_leaks():
        status, shown = run_in_terminal(
            [
                sys.executable,
                "-m",
                "tfps",
                "run",
                "--workers",
                "2",
                "--ps",
                "1",
                script,
                *continued,
            ],
            deadline_s=240,
            typed={},
            environment={"TF_CONFIG": None, "KERAS_HOME": str(keras_home)},
            folder=tmp_path,
        )
    assert status == 0, shown
    (accuracy,) = re.findall(r"test loss and accuracy: \[[\d.]+, ([\d.]+)\]", shown)
    assert float(accuracy) > 0.75
    (loss,) = re.findall(r"mean loss: ([\d.]+)", shown)
    assert float(loss) < 1
    assert shown.count("norm of the last bias:") == 2
    (updates,) = re.findall(r"all updates: (\d+)", shown)
    # Three epochs of 10,000 examples, 100 scheduled steps, and of 6,400 examples: two functions and
    # a service, the callbacks' two epochs, rows, three optimizers, a checkpoint, and two epochs
    # that can be resumed; a push of rows; 20 batches of a collection.
    epochs = 2 + 2 + 2 + 1 + 3 + 1 + 2 - sum(left_out.values())
    assert int(updates) == 3 * 157 + 100 + epochs * 100 + 1 + 20, shown
    assert "updates since the pull: 0" in shown
    for sample in pages.samples("own script"):
        assert pages.not_shown(sample.text, shown) == []


def test_the_diff_changes_four_things() -> None:
    (own,) = pages.runnable("own script")
    before, after = (
        [line.strip() for line in text.splitlines()]
        for text in (pages.before(own.text), pages.after(own.text))
    )
    assert [line for line in before if line not in after] == []
    assert [line for line in after if line not in before] == [
        "import tfps",
        "strategy = tfps.ParameterServerStrategy()",
        "with strategy.scope():",
    ]


@pytest.mark.repeats
@pytest.mark.parametrize("block", pages.runnable("alone"), ids=lambda block: block.page.stem)
def test_programs_of_their_own_run(block: pages.Block, tmp_path: Path) -> None:
    with assert_no_leaks():
        result = run_command(
            [sys.executable, "-"],
            deadline_s=120,
            environment={"TF_CONFIG": None},
            folder=tmp_path,
            input_text=block.text,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    for sample in pages.samples(f"of {block.page.stem}"):
        assert pages.not_shown(sample.text, result.stdout) == []


@pytest.mark.repeats
def test_the_notebook_runs(tmp_path: Path) -> None:
    """It runs cell by cell in one process, as from the folder of the repository."""
    notebook = json.loads((ROOT / "docs/start/notebook.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if "outputs" in cell)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program = (
        f"import json\nfor cell in json.loads({json.dumps(json.dumps(cells))}):\n    exec(cell)"
    )
    with assert_no_leaks():
        result = run_command(
            [sys.executable, "-"],
            deadline_s=120,
            environment={"TF_CONFIG": None},
            folder=tmp_path,
            input_text=program,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    (accuracy,) = re.findall(r"test accuracy ([\d.]+)", result.stdout)
    assert float(accuracy) > 0.75
    assert "471 updates" in result.stdout


@pytest.mark.repeats
def test_a_mistake_is_told_as_the_page_says(tmp_path: Path) -> None:
    (program,), (sample,) = pages.runnable("fails"), pages.samples("fails")
    (tmp_path / "train.py").write_text(program.text)
    with assert_no_leaks():
        result = run_command(
            [sys.executable, "-m", "tfps", "run", "train.py"],
            deadline_s=120,
            environment={"TF_CONFIG": None},
            folder=tmp_path,
        )
    assert result.returncode == 1, result.stdout + result.stderr
    printed = (result.stdout + result.stderr).replace("[chief] ", "")
    assert pages.not_shown(sample.text, printed) == [], printed


def test_every_python_example_is_run() -> None:
    """The kind "pytest" runs in tests/cluster/launch/test_own_tests.py."""
    of_python = [block for block in BLOCKS if block.language in ("python", "diff")]
    assert [block for block in of_python if block.marker != "runnable"] == []
    kinds = {block.value for block in BLOCKS if block.marker == "runnable"}
    assert kinds == {"own script", "continued", "alone", "fails", "pytest"}


def test_every_sample_is_compared_with_what_is_printed() -> None:
    """Tables of benchmarks are those of one run; where code is compared, nothing is printed."""
    apart = {"CONTRIBUTING.md", "docs/start/from-tensorflow.md"}
    samples = [block for block in BLOCKS if block.language == "text"]
    compared = {"own script", "make train", "fails", "plan compare"}
    compared |= {f"of {block.page.stem}" for block in pages.runnable("alone")}
    compared |= {path.stem for path in (ROOT / "examples").glob("*.py")}
    for sample in samples:
        page = sample.page.relative_to(ROOT).as_posix()
        if page not in apart and not page.startswith("docs/benchmarks/"):
            assert (sample.marker, sample.value in compared) == ("output", True), (
                page,
                sample.text,
            )


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= LONGEST_README_LINES


def test_a_commit_is_checked_with_the_site() -> None:
    """A dead link is an error there: `make docs` turns warnings into errors."""
    assert re.search(r"^timeout .* make docs$", (ROOT / ".ci/run").read_text(), re.M)
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^docs:.*\n(\t.*\n)*\t.*sphinx-build --fail-on-warning", makefile, re.M)


def test_each_page_is_two_clicks_from_the_readme() -> None:
    near = {ROOT / "README.md"}
    for _ in range(2):
        near |= {
            (page.parent / link).resolve()
            for page in near
            if page.suffix == ".md"
            for link in re.findall(r"\]\(([\w./-]+)", page.read_text())
            if "//" not in link
        }
    assert [page for page in pages.pages() if page not in near] == []


def test_commands_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    for name in ("examples", "configs", "docker"):
        Path(name).symlink_to(ROOT / name)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    seen = set()
    for program, *arguments in pages.commands():
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
        elif program == "python":
            assert arguments[:2] == ["-m", "benchmarks.pages"] or (
                arguments[:2] == ["-m", "benchmarks"] and arguments[2] in benchmarks.commands
            ), arguments
        elif program == "docker":
            assert Path(arguments[arguments.index("-f") + 1]).is_file()
        else:
            assert program in (".venv/bin/python", "pip", "pytest", "git", "ulimit"), program
    assert {"tfps", "make", "docker", "python"} <= seen


def test_every_command_is_in_the_table() -> None:
    table = pages.text_of("docs/reference/commands.md")
    rows = [row.split() for row in re.findall(r"^\| `tfps (.*?)` \|", table, re.M)]
    context = click.Context(main)
    assert {row[0] for row in rows} == set(main.list_commands(context))


def test_every_benchmark_has_a_page() -> None:
    listed = re.findall(r"^- \[.*?\]\((\w+)\.md\)", pages.text_of("docs/benchmarks/index.md"), re.M)
    assert set(benchmarks.commands) == set(listed) - {"aims"}
    for name in benchmarks.commands:
        assert f"`python -m benchmarks {name}`" in pages.text_of(f"docs/benchmarks/{name}.md")


def test_files_exist() -> None:
    folders = "benchmarks|configs|docker|docs|examples|tests|tfps"
    names = re.findall(rf"`((?:{folders})/[\w./-]+|\.ci/\w+)`", PAGES)
    assert len(names) > 5
    assert [name for name in names if not (ROOT / name).exists() and "NAME" not in name] == []
    assert all((ROOT / path).is_file() for path in re.findall(r"cat (configs/[\w./-]+)", PAGES))
    listed = set(re.findall(r"`(\w+)\.py`", pages.text_of("docs/start/examples.md")))
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == listed


def test_names_beside_links_are_in_the_files() -> None:
    """Pages write [`push.py`](push.py), `Push.trace`: a link alone would not notice a new name."""
    beside = re.compile(r"\(([\w./]+\.py)\)[,;]\s+`([\w.]+)`")
    found = [
        ((page.parent / path).resolve(), name)
        for page in pages.pages()
        for path, names in beside.findall(page.read_text())
        for name in names.split(".")
    ]
    assert len(found) > 8
    missing = [
        (path.name, name)
        for path, name in found
        if not re.search(rf"\b(?:def|class) {name}\b|^{name}\b|\.{name} = ", path.read_text(), re.M)
    ]
    assert missing == []


def test_every_feature_names_a_test_that_exists() -> None:
    rows = re.findall(r"^\|.*\| (.*?) \|$", pages.text_of("docs/reference/what-works.md"), re.M)
    named = [name for row in rows for name in re.findall(r"`([\w/]+)`", row)]
    assert len(named) > 20
    homes = [
        ROOT / "tests" / home for home in ("", "cluster", "unit/numbers", "unit/numbers/keras")
    ]
    found = {
        name
        for name in named
        for home in homes
        if (home / name).is_dir() or (home / f"{name}.py").is_file()
    }
    assert sorted(set(named) - found) == []


def test_names_exist() -> None:
    assert set(re.findall(r"`tfps\.([a-zA-Z]\w+)", PAGES)) <= set(tfps.__all__) | {"toml"}
    for name in re.findall(r"`(\w+Error|ConnectTimeout)`", PAGES):
        assert hasattr(tfps.errors, name) or hasattr(builtins, name), name
    source = "".join(path.read_text() for path in (ROOT / "tfps").rglob("*.py"))
    assert [name for name in re.findall(r"TFPS_\w+", PAGES) if f'"{name}"' not in source] == []


def test_no_page_speaks_of_a_time() -> None:
    """A missing feature is a limit; the time when a page was written does not matter."""
    assert re.findall(r"\b(so far|today|not yet|Measure again|good hour)\b", PAGES) == []
    assert "git clone" not in PAGES
