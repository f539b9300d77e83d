"""The check of wording in `make lint`: no file gets more findings than it has."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / ".ci" / "prose.py"


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ('"""Return the rows."""\n', []),
        ('"""Of the rows that came."""\n', ["a docstring that opens with a fragment"]),
        ("x = 1  # nobody reads it\n", ["an unnamed person"]),
        ("class ValuesSent: ...\n", ["a class that no noun names"]),
        ("x = 'nobody'\n", []),
    ],
    ids=["plain", "fragment", "comment", "class", "value"],
)
def test_findings_of_a_module(prose: ModuleType, source: str, rules: list[str]) -> None:
    assert [rule for _, rule, _ in prose.findings_of_module(source)] == rules


def test_a_file_that_moves_keeps_its_number(prose: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "stays.py").touch()
    record = {"stays.py": 2, "old/moved.py": 3}
    paths = ("stays.py", "new/moved.py", "new/stays.py", "other.py")
    found = {path: prose.allowed(path, record, root=tmp_path) for path in paths}
    assert list(found.values()) == [2, 3, 0, 0]
