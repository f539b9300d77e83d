"""The check of wording in `make lint`, and the sample of words for readers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / ".ci"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


prose, words = load("prose"), load("sample_words")
RULES = {rule.name: rule for rule in prose.read_rules()}
PERSON = "an unnamed person"
(INSTEAD,) = (name for name in RULES if "instead of" in name)
# In two parts: this file is checked itself.
SAYS, PLACE = "nobo" + "dy reads it", "in the\n" + "place of"


def rules_of(source: str, *, texts: str = "texts_of_module") -> list[tuple[int, str]]:
    found = prose.findings_of("a.py", getattr(prose, texts)(source), list(RULES.values()))
    return [(each.line, each.rule) for each in found]


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_each_rule_has_a_text_that_fails_and_one_that_passes(rule: Any) -> None:
    for place in rule.places:
        found = {
            text: [f.rule for f in prose.findings_of("a", [prose.Text(place, 1, text)], [rule])]
            for text in (rule.bad, rule.good)
        }
        assert set(found[rule.bad]) == {rule.name}, place
        assert found[rule.good] == [], place


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Return the rows."""\n', []),
        (f'"""Return the rows.\n\n{SAYS}\n"""\n', [(3, PERSON)]),
        (f"x = 1  # {SAYS}\n", [(1, PERSON)]),
        (
            f"x = 1\n# a copy {PLACE}\n# {SAYS}\n".replace("the\n", "the\n# "),
            [(4, PERSON), (2, INSTEAD)],
        ),
        ("class ValuesSent: ...\n", [(1, "a class")]),
        (f"raise ValueError(f'{{x}}: {SAYS} ' 'now')\n", [(1, PERSON)]),
        (f"x = '{SAYS.split(maxsplit=1)[0]}'\n", []),
        (f'"""Return `{SAYS}`."""\n', []),
    ],
    ids=["plain", "docstring", "comment", "lines", "class", "message", "one word", "code"],
)
def test_texts_of_a_module(source: str, found: list[tuple[int, str]]) -> None:
    rules = rules_of(source)
    assert [line for line, _ in rules] == [line for line, _ in found]
    assert all(r.startswith(start) for (_, r), (_, start) in zip(rules, found, strict=True))


def test_texts_of_a_page() -> None:
    page = f"A page.\n\n```\n{SAYS}\n```\nA copy {PLACE} another.\n"
    assert rules_of(page, texts="texts_of_page") == [(6, INSTEAD)]


def test_allowed_findings() -> None:
    found = [prose.Finding("a.py", 1, PERSON, SAYS, "use the passive")]
    assert prose.judge(found, f"# the reason\n\na.py: {SAYS}\n") == []
    assert prose.judge(found, "") == [f"a.py:1: {PERSON}: {SAYS}; use the passive"]
    (unlike, unused) = prose.judge(found, f"b.py: {SAYS}\n")
    assert unlike.startswith("a.py:1:")
    assert "no finding has this: b.py" in unused


def test_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["prose.py", str(tmp_path)])
    (tmp_path / "tfps").mkdir()
    (tmp_path / "tfps" / "a.py").write_text('"""The rows."""\n')
    assert prose.main() == 0
    (tmp_path / "README.md").write_text(f"{SAYS}\n")
    assert prose.main() == 1


def test_a_sample_is_of_its_seed() -> None:
    def sample(seed: int) -> str:
        package = words.ROOT / "tfps" / "consistency"  # a part of tfps: all of it takes seconds
        return str(words.sample(seed=seed, docstrings=6, names=4, package=package))

    assert sample(1) == sample(1) != sample(2)
    assert len(sample(1).splitlines()) == 1 + 6 + 1 + 4
