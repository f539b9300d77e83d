"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import tfps

# Running them is what they are: `python -m tfps`.
COMMANDS = {"tfps.__main__"}
MODULES = sorted(
    {module.name for module in pkgutil.walk_packages(tfps.__path__, "tfps.")} - COMMANDS
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("doctest"))
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [importlib.import_module(f"tfps.{name}") for name in ("units", "placement.plan")]
    assert all(any(test.examples for test in finder.find(module)) for module in modules)
