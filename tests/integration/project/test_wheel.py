"""An installation in an empty folder, and its contents."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import tfps

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, clean_environment: dict[str, str]) -> Run:
    """Runs a command in an empty folder."""

    def run(command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**clean_environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_the_wheel_holds_the_shipped_jobs(wheel: Path, root: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "tfps/py.typed" in names
    for folder in ("configs", "examples"):
        shipped = {
            f"tfps/bundled/{path.relative_to(root).as_posix()}"
            for path in (root / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert shipped, f"{folder}/ is empty"
        assert shipped <= names


@pytest.mark.rare
def test_the_source_distribution_holds_pages_and_benchmarks(root: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", f"--outdir={tmp_path}", root],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    shipped = {
        path.relative_to(root).as_posix()
        for folder in ("benchmarks", "docs")
        for path in (root / folder).rglob("*.*")
    }
    shipped = {name for name in shipped if "__pycache__" not in name}
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} | shipped <= names


def test_the_wheel_holds_no_tests_and_no_caches(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    at_top = {"tfps", f"tfps-{tfps.__version__}.dist-info"}
    assert {name.split("/")[0] for name in names} == at_top
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


@pytest.mark.quick("tfps")
@pytest.mark.parametrize("command", [["tfps"], ["python", "-m", "tfps"]], ids=" ".join)
def test_the_command_works_in_an_empty_folder(
    installed: Path, run: Run, command: list[str]
) -> None:
    start: list[str | Path] = [installed / command[0], *command[1:]]
    result = run([*start, "--version"])
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"tfps {tfps.__version__} (TensorFlow ")
    helped = run([*start, "--help"])
    assert (helped.returncode, helped.stderr) == (0, "")
    for name in ("run", "train", "check"):
        assert f"  {name} " in helped.stdout


@pytest.mark.repeats
def test_the_installed_package_is_the_wheels(installed: Path, run: Run) -> None:
    found = run([installed / "python", "-c", "import tfps; print(tfps.__file__)"])
    assert Path(found.stdout.strip()).is_relative_to(installed.parent)


@pytest.mark.repeats
def test_shipped_jobs_are_found_in_an_empty_folder(installed: Path, run: Run) -> None:
    program = (
        "import sys, tfps.config.bundle as b\n"
        "print(*map(b.config_path, [*sys.argv[1:], None]), sep='\\n')"
    )
    name = "fashion_mnist_sync"
    found = run([installed / "python", "-c", program, name, f"{name}.toml", f"configs/{name}.toml"])
    *paths, default = found.stdout.splitlines()
    (path,) = set(paths)
    assert path.endswith(f"tfps/bundled/configs/{name}.toml")
    assert Path(path).is_file()
    assert Path(default) == Path(path).with_name("fashion_mnist.toml")
    assert Path(default).is_file()


def test_import_needs_no_tensorflow(installed: Path, run: Run) -> None:
    program = (
        "import sys, tfps, tfps.cluster, tfps.placement, tfps.config\n"
        "print(sorted({'tensorflow', 'keras', 'tf_keras'} & set(sys.modules)))"
    )
    result = run([installed / "python", "-c", program])
    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n", "")
