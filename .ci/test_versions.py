"""Tests the library with pairs of TensorFlow and Keras, one environment after the other.

    python .ci/test_versions.py                  all rows: ten in full, a smoke of the others
    python .ci/test_versions.py 2.16.2+3.12.4 2.21.0+3.12.4
    python .ci/test_versions.py 2.18.1+3.13.2 --tests conformance

Each TensorFlow gets a fresh environment in build/rows, from wheels, with its locked versions; the
Keras of a row replaces that of the row before. Needs Python 3.12. The result goes into
tfps/tested_versions.toml, and from there into the table of docs/reference/versions.md. A row that
fails or cannot be installed is written, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfps import tested_versions  # noqa: E402 - found in this checkout
from tfps.tested_versions import Row, parse_minor  # noqa: E402

PAGE = ROOT / "docs/reference/versions.md"
FOLDER = ROOT / "build/rows"
BEGIN, END = "<!-- rows -->\n", "<!-- end of rows -->\n"
TENSORFLOW = ("2.21.0", "2.20.0", "2.19.1", "2.18.1", "2.17.1", "2.16.2")
KERAS = ("3.15.1", "3.14.1", "3.13.2", "3.12.4")
LIMIT_S = 3600.0
CLOSING = re.compile(r"\d+ (passed|failed).* in [\d.]+s|: weights differ by ")

# One program: names, loss scaling, a divided table and files have the numbers of one process.
SMOKE = "tfps.job.version_check"
# Names and parameters; numbers; both transports; a lost worker; a custom loop; files.
SHORT = (
    "tests/unit/bridge/test_private_names.py",
    "tests/unit/numbers/keras/test_loss_scale.py",
    "tests/unit/numbers/keras/test_optimizers.py",
    "tests/unit/numbers/keras/test_saving.py",
    "tests/unit/numbers/modes/test_custom_iterations.py",
    "tests/unit/numbers/modes/test_two_workers.py",
    "tests/cluster/training/test_lost_worker.py",
    "tests/cluster/training/test_same_numbers.py",
    "tests/cluster/transport/test_carriers.py",
)
CONFORMANCE = (
    *SHORT,
    "tests/unit/numbers/test_equality.py",
    "tests/unit/numbers/test_modes_ways_tables.py",
    "tests/unit/numbers/keras/test_precision.py",
    "tests/unit/numbers/shards/test_rows.py",
    "tests/unit/numbers/shards/test_values.py",
    "tests/cluster/versions",
    "tests/cluster/consistency/test_bounded_staleness.py",
    "tests/cluster/consistency/test_local_steps.py",
    "tests/cluster/consistency/test_synchronous.py",
    "tests/cluster/training/test_fit.py",
    "tests/cluster/training/test_lost_server.py",
    "tests/cluster/upstream/test_fault_tolerance.py",
    "tests/cluster/upstream/test_schedule.py",
)
SETS = {"smoke": (), "short": SHORT, "conformance": CONFORMANCE}


def all_rows() -> dict[str, str]:
    """The name of each row -> its set of tests: ten rows in full, the oldest pair among them."""
    return {
        f"{tensorflow}+{keras}": "conformance"
        if tensorflow == TENSORFLOW[0]
        or keras == KERAS[0]
        or (tensorflow, keras) == (TENSORFLOW[-1], KERAS[-1])
        else "smoke"
        for tensorflow in TENSORFLOW
        for keras in KERAS
    }


def python_of_rows() -> str:
    """The Python 3.12 that rows are made with: TensorFlow 2.16 to 2.19 have no wheel for 3.13."""
    code = "import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 12))"
    for candidate in [os.environ.get("PYTHON") or "python3.12", sys.executable]:
        if (
            shutil.which(candidate)
            and subprocess.run([candidate, "-c", code], check=False).returncode == 0
        ):
            return candidate
    raise SystemExit("no Python 3.12 found; install it, or name it: PYTHON=/path/to/python3.12")


def constraints(tensorflow: str, keras: str, folder: Path) -> Path:
    """Write the locked versions of a row: those of its TensorFlow, and its Keras."""
    minor = ".".join(map(str, parse_minor(tensorflow)))
    file = ROOT / "constraints" / f"tensorflow-{minor}.txt"
    newest = parse_minor(tensorflow) == parse_minor(TENSORFLOW[0])
    text = (ROOT / "constraints.txt" if newest else file).read_text()
    pinned = (f"tensorflow=={tensorflow}", f"keras=={keras}")
    lines = [line for line in text.splitlines() if not re.match(r"(tensorflow|keras)==", line)]
    written = folder / "constraints.txt"
    written.write_text("\n".join([*lines, *pinned]) + "\n")
    return written


def make_environment(row: str, folder: Path, venv: Path) -> Path:
    """Install the checkout and its tests' packages in a row's versions; return the interpreter.

    Args:
        row: the name of the row.
        folder: the new folder for the row's constraints and logs.
        venv: the environment of the row's TensorFlow; made if it does not exist.
    """
    tensorflow, keras = row.split("+")
    folder.mkdir(parents=True)
    if not venv.exists():
        subprocess.run([python_of_rows(), "-m", "venv", venv], check=True)
    python = venv / "bin/python"
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    wheels = ["--only-binary=:all:", "--no-binary=promise"]
    locked = ["-c", constraints(tensorflow, keras, folder)]
    with (folder / "install.log").open("w") as log:
        subprocess.run(
            [*pip, *wheels, *locked, "-e", f"{ROOT}[test]"],
            check=True,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    return python


def run_tests(python: Path, tests: str, log: Path) -> tuple[bool, str]:
    """Run a set of tests; return whether they passed, and the closing line."""
    environment = os.environ | {"TFPS_UNTESTED": "1"}  # the row may be outside of the tested range
    other = ROOT / ".venv/bin/python"
    if other.exists():
        environment["OTHER_PYTHON"] = str(other)
    command = [python, "-m", "pytest", "-q", "--quickly", "--hypothesis-seed=0"]
    command += ["-m", "not (slow or repeats or rare)", *SETS[tests]]
    if tests == "smoke":
        command = [python, "-m", SMOKE]
    with log.open("w") as file:
        try:
            ended = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, f"did not end within {LIMIT_S:.0f} s"
    lines = log.read_text(errors="replace").splitlines()
    closing = [line.strip("= ") for line in lines if CLOSING.search(line)]
    return ended.returncode == 0, closing[-1] if closing else f"ended with {ended.returncode}"


def test_row(row: str, tests: str, venv: Path) -> Row:
    """Make a row's environment, and run its tests in it."""
    folder = FOLDER / row
    shutil.rmtree(folder, ignore_errors=True)
    tensorflow, keras = row.split("+")
    python_version, passed = platform.python_version(), False
    try:
        python = make_environment(row, folder, venv)
        python_version = subprocess.check_output(
            [python, "-c", "import platform; print(platform.python_version())"], text=True
        ).strip()
        passed, closing = run_tests(python, tests, folder / "test.log")
    except subprocess.CalledProcessError as error:
        closing = f"not installed: {Path(str(error.cmd[0])).name} ended with {error.returncode}"
    return Row(
        tensorflow=tensorflow,
        keras=keras,
        python=python_version,
        tests=tests,
        passed=passed,
        closing=closing,
    )


def record(row: Row) -> None:
    """Write a row's result into the file of the package, and all of them into the page."""
    tested_versions.read_version_rows.cache_clear()
    rows = [each for each in tested_versions.read_version_rows() if each.name != row.name]
    text = "# Written by `make test-versions` from its runs, not by hand.\n"
    for each in sorted([*rows, row], key=tested_versions.get_sort_key, reverse=True):
        text += "\n[[row]]\n"
        for key, value in dataclasses.asdict(each).items():
            text += f"{key} = {json.dumps(value)}\n"  # texts and booleans are as in TOML
    tested_versions.FILE.write_text(text)
    tested_versions.read_version_rows.cache_clear()
    write_page()


def table() -> str:
    """The rows as a table of the page."""
    lines = ["| TensorFlow | Keras | Python | tests | result |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.tensorflow} | {row.keras} | {row.python} | {row.tests} | "
        f"{'' if row.passed else 'failed: '}{row.closing} |"
        for row in tested_versions.read_version_rows()
    ]
    return "\n".join(lines) + "\n"


def write_page() -> None:
    """Put the table into the page, between its two marks."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Test pairs of TensorFlow and Keras.")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="such as 2.16.2+3.12.4; default: all"
    )
    parser.add_argument(
        "--tests", choices=SETS, help="default: conformance for ten rows, else smoke"
    )
    parser.add_argument("--keep", action="store_true", help="leave the environments in build/rows")
    given = parser.parse_args(arguments)
    known = all_rows()
    for name in given.rows:
        if not re.fullmatch(r"\d+(\.\w+)*\+\d+(\.\w+)*", name):
            parser.error(
                f"ROW: received {name!r}, expected TENSORFLOW+KERAS, such as 2.16.2+3.12.4"
            )
    failed = 0
    names = given.rows or known
    for tensorflow in dict.fromkeys(name.partition("+")[0] for name in names):
        venv = FOLDER / f"tensorflow-{tensorflow}"
        shutil.rmtree(venv, ignore_errors=True)
        for name in (each for each in names if each.startswith(f"{tensorflow}+")):
            started = time.monotonic()
            row = test_row(name, given.tests or known.get(name, "smoke"), venv)
            record(row)
            failed += not row.passed
            seconds = time.monotonic() - started
            print(f"{name}: {row.tests}: {row.closing} [{seconds:.0f} s]", flush=True)
        if not given.keep:
            shutil.rmtree(venv, ignore_errors=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
