"""`.ci/environment`, with stand-ins for Python that write down what they are asked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

# Replies as a supported Python would; `-m venv` makes an environment with itself as the Python.
PYTHON = """\
#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
"-m venv"*)
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    echo "#!$PWD/.venv/bin/python" >.venv/bin/pip ;;
*"import ensurepip"*) exit "${WITHOUT_ENSUREPIP:-0}" ;;
*"pip install"*) exit "${PIP_STATUS:-0}" ;;
esac
"""


class Checkout:
    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder / "checkout"
        self.calls = folder / "calls"
        (self.folder / ".ci").mkdir(parents=True)
        shutil.copy(root / ".ci/environment", self.folder / ".ci/environment")
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy(root / name, self.folder / name)
        self.python = folder / "python3.12"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)

    def prepare(self, extras: str = "test", **environment: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        return subprocess.run(
            [self.folder / ".ci/environment", extras, "4"],
            env=os.environ | {"PYTHON": str(self.python), "CALLS": str(self.calls)} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def installs(self) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if "pip install" in line]


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Checkout:
    return Checkout(tmp_path, root)


def test_three_numbered_steps_install_locked_versions(checkout: Checkout) -> None:
    prepared = checkout.prepare()
    assert prepared.returncode == 0, prepared.stderr
    numbered = [line[:5] for line in prepared.stdout.splitlines() if line.startswith("[")]
    assert numbered == ["[1/4]", "[2/4]", "[3/4]"]
    (install,) = checkout.installs
    assert install.endswith("-c constraints.txt -e .[test]")


def test_a_second_time_there_is_nothing_to_do(checkout: Checkout) -> None:
    checkout.prepare()
    again = checkout.prepare()
    assert again.stdout == "[1-3/4] The environment .venv is complete: nothing to install.\n"
    assert checkout.installs == []
    # The tests' environment is enough for training.
    checkout.prepare("none")
    assert checkout.installs == []


def test_training_alone_needs_tensorflow(checkout: Checkout) -> None:
    checkout.prepare("none")
    (install,) = checkout.installs
    assert install.endswith("-e .[tensorflow]")


@pytest.mark.parametrize("tools", ["lint", "docs"])
def test_tools_are_installed_beside_what_tests_need(checkout: Checkout, tools: str) -> None:
    checkout.prepare()
    checkout.prepare(tools)
    (install,) = checkout.installs
    assert install.endswith(f"-e .[{tools}]")
    checkout.prepare(tools)
    assert checkout.installs == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_the_dependencies_installs_again(checkout: Checkout, name: str) -> None:
    checkout.prepare()
    with (checkout.folder / name).open("a") as file:
        file.write("# changed\n")
    assert "already there" in checkout.prepare().stdout
    assert len(checkout.installs) == 1


def test_an_interrupted_installation_is_no_installation(checkout: Checkout) -> None:
    failed = checkout.prepare(PIP_STATUS="1")
    assert failed.returncode == 1
    assert "The installation failed" in failed.stderr
    assert checkout.prepare().returncode == 0
    assert len(checkout.installs) == 1


def test_a_folder_that_was_moved_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.prepare()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    checkout.prepare()
    assert "-m venv --clear .venv" in checkout.calls.read_text()


def test_without_a_suitable_python_the_error_says_which_is(checkout: Checkout) -> None:
    failed = checkout.prepare(PYTHON="no-such-python")
    assert failed.returncode == 1
    assert "No Python 3.11, 3.12 or 3.13 found (looked for: no-such-python)" in failed.stderr
    assert "make train PYTHON=/path/to/python3.12" in failed.stderr


def test_a_python_without_venv_is_named_with_the_package_to_install(checkout: Checkout) -> None:
    failed = checkout.prepare(WITHOUT_ENSUREPIP="1")
    assert failed.returncode == 1
    assert "apt-get install python3.12-venv" in failed.stderr
