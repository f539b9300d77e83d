"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import benchmarks
import tfps

# Running them is what they are: `python -m tfps`.
COMMANDS = {"tfps.__main__", "benchmarks.__main__"}
MODULES = sorted(
    {
        name
        for package in (tfps, benchmarks)
        for name in (
            package.__name__,
            *(m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")),
        )
    }
    - COMMANDS
)
ROOT = Path(tfps.__file__).parents[1]


def _text(name: str) -> str:
    path = ROOT.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text()


# By their text: importing all of them takes seconds, and this is read for every run of pytest.
WITH_EXAMPLES = [name for name in MODULES if ">>> " in _text(name)]
# These train; other tests show the same.
LEFT_TO_TEST_ALL = {
    "tfps.strategy.parameter_server",
    "tfps.strategy.primitives.pull_and_push",
    "tfps.training.resume",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.repeats) if name in LEFT_TO_TEST_ALL else name
        for name in WITH_EXAMPLES
    ],
)
def test_examples(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("doctest"))
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_every_module_can_be_imported_and_none_of_its_examples_is_missed() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = {name: importlib.import_module(name) for name in MODULES}
    found = [name for name in MODULES if any(test.examples for test in finder.find(modules[name]))]
    assert len(found) > 50
    assert found == WITH_EXAMPLES
