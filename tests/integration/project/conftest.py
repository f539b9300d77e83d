"""A wheel of this checkout, and a clean virtual environment with it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """This process's environment without what leads Python or TensorFlow to this checkout."""
    hidden = ("PYTHON", "TF_", "KERAS_", "VIRTUAL_ENV", "COVERAGE")
    return {key: value for key, value in os.environ.items() if not key.startswith(hidden)}


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the hatchling that is installed here: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", f"--outdir={folder}", ROOT],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    (wheel,) = folder.glob("tfps-*.whl")
    return wheel


@pytest.fixture(scope="session")
def installed(
    wheel: Path, clean_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder `bin` of a new environment that holds the wheel; dependencies are borrowed.

    Their download is the slow test's. A path in a .pth file is searched, but .pth files found
    there are not read, so that an editable installation of this checkout stays invisible.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    binaries = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python")]
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", wheel],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment,
    )
    libraries = subprocess.check_output(
        [binaries / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        text=True,
    )
    borrowed = sysconfig.get_path("purelib") + "\n"
    (Path(libraries.strip()) / "borrowed.pth").write_text(borrowed)
    return binaries
