"""Versions of imported modules are found under any distribution name."""

from __future__ import annotations

import platform
import sys
import types
from importlib import metadata
from pathlib import Path

import pytest

import tfps
from tfps.package_versions import package_version, package_versions


def test_who_is_asked_for_is_told_and_who_asks() -> None:
    assert package_versions(["click", "no_such_package"]) == {
        "python": platform.python_version(),
        "tfps": tfps.__version__,
        "click": metadata.version("click"),
        "no_such_package": None,
    }


def test_a_module_of_a_distribution_of_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distribution `tensorflow-cpu`, for example, brings the module `tensorflow`."""
    installed = tmp_path / "deep_sums_cpu-2.5.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: deep-sums-cpu\nVersion: 2.5\n"
    )
    (installed / "RECORD").write_text("deep_sums/__init__.py,,\n")
    (tmp_path / "deep_sums").mkdir()
    (tmp_path / "deep_sums" / "__init__.py").touch()  # Python 3.12 leaves out what is missing
    monkeypatch.syspath_prepend(tmp_path)
    assert package_version("deep_sums") == "2.5"
    assert package_version("deep-sums") == "2.5"
    assert "deep_sums" not in sys.modules


def test_a_module_from_a_folder_says_its_version_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("deep_sums")
    monkeypatch.setitem(sys.modules, "deep_sums", module)
    assert package_version("deep-sums") is None
    monkeypatch.setattr(module, "__version__", "2.6", raising=False)
    assert package_version("deep-sums") == "2.6"
