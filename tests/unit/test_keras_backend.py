"""The backend of Keras, wherever it was chosen, without importing Keras."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import tfps
from tests.messages import raises
from tfps.cli import main
from tfps.errors import BackendError
from tfps.keras_backend import check_backend, chosen_backend
from tfps.testing import InProcessCluster

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keras is not imported, and its home is an empty folder."""
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))


def _write_keras_json(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "keras.json"
    file.write_text(text)
    return file


def test_default_is_tensorflow() -> None:
    assert chosen_backend() == ("tensorflow", "Keras's default")
    check_backend()


def test_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with raises(BackendError, "backend", received="'jax'", remedy="KERAS_BACKEND=tensorflow"):
        check_backend()


def test_keras_json_in_keras_home(tmp_path: Path) -> None:
    file = _write_keras_json(tmp_path, json.dumps({"backend": "torch"}))
    assert chosen_backend() == ("torch", f"the key 'backend' in {file}")
    with raises(BackendError, str(file), received="'torch'", remedy="KERAS_BACKEND=tensorflow"):
        check_backend()


def test_keras_json_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    _write_keras_json(tmp_path / ".keras", json.dumps({"backend": "jax"}))
    assert chosen_backend()[0] == "jax"


def test_keras_home_may_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_HOME", os.path.join("~", "keras-home"))
    _write_keras_json(tmp_path / "keras-home", json.dumps({"backend": "jax"}))
    assert chosen_backend()[0] == "jax"


@pytest.mark.parametrize("text", ["{}", '{"floatx": "float32"}', "{not json"])
def test_keras_json_that_chooses_nothing(text: str, tmp_path: Path) -> None:
    _write_keras_json(tmp_path, text)
    assert chosen_backend()[0] == "tensorflow"


@pytest.mark.parametrize(("value", "expected"), [("tensorflow", "tensorflow"), ("", "jax")])
def test_environment_goes_before_keras_json(
    value: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _write_keras_json(tmp_path, json.dumps({"backend": "jax"}))
    monkeypatch.setenv("KERAS_BACKEND", value)
    assert chosen_backend()[0] == expected


def test_an_imported_keras_goes_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    keras = types.SimpleNamespace(config=types.SimpleNamespace(backend=lambda: "torch"))
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert chosen_backend() == ("torch", "Keras is imported with it already")


def test_the_first_name_of_tfps_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    for name in set(tfps.__all__) - {"errors", "testing"}:
        with raises(BackendError, "backend", received="'jax'", remedy="KERAS_BACKEND=tensorflow"):
            tfps.__getattr__(name)  # not asked for what was imported already
    assert tfps.errors.BackendError is BackendError
    assert not hasattr(tfps, "no_such_name")


def test_without_tensorflow_the_command_that_installs_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorflow" else find(name)
    )
    with raises(BackendError, "tensorflow", received="no installation", remedy="pip install"):
        check_backend()


@pytest.mark.parametrize("call", [InProcessCluster, InProcessCluster.reserve])
def test_a_cluster_in_one_process_says_so(
    call: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with raises(BackendError, "backend", received="'jax'", remedy="KERAS_BACKEND=tensorflow"):
        call(workers=1, ps=1)


@pytest.mark.parametrize("subcommand", ["train", "serve", "check"])
def test_a_subcommand_says_so_in_a_line(subcommand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    result = CliRunner().invoke(main, [subcommand])
    assert result.exit_code == 1
    assert result.output.startswith("Error: backend: received ")
    assert CliRunner().invoke(main, ["--version"]).exit_code == 0


PACKAGES = """
import importlib, sys, tfps
from tfps.errors import BackendError

for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BackendError:
        print(name)
assert not {"keras", "tensorflow"} & set(sys.modules)
"""


def _imports_keras(file: Path) -> bool:
    found = [
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    return any(name.partition(".")[0] == "keras" for name in found)


def test_each_package_that_imports_keras_says_so_before_it_does() -> None:
    """And what starts processes; `import tfps` itself does not: pytest does so in any project."""
    package = REPOSITORY / "tfps"
    files = [file.relative_to(package) for file in package.rglob("*.py") if _imports_keras(file)]
    assert len(files) > 50
    packages = {f"tfps.{file.parts[0]}" for file in files} | {"tfps.launch", "tfps.callbacks"}
    result = subprocess.run(
        [sys.executable, "-c", PACKAGES, *sorted(packages)],
        cwd=REPOSITORY,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == sorted(packages)
