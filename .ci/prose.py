#!/usr/bin/env python3
"""Check the wording of docstrings, comments, messages, class names and pages.

usage: .ci/prose.py [ROOT]

Prints `path:line: rule: text; what to write instead` for each finding, and exits with 1 if there is
any. The rules are in `prose_rules.toml`. `prose_allowed.txt` lists the findings that may stay, one
line `path: text` for each, below a comment with the reason; the text is some of the finding's own,
or all of it. An entry that matches no finding is an error, too.
The rules are mechanical: what they let through still has to read well.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import io
import pathlib
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = ("tfps", "benchmarks", "tests", "examples", "docs", "configs", "docker")
ALLOWED = ".ci/prose_allowed.txt"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True)
class Rule:
    """A wording to avoid, as `prose_rules.toml` describes it."""

    name: str
    places: list[str]
    pattern: str
    instead: str
    bad: str
    good: str

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern for a text that is broken anywhere between two words."""
        flat = self.pattern.replace("\n", "")
        # A space within (?<!...) stays one: a look-behind has a fixed length.
        spaced = re.sub(r"(\(\?<![^)]*\))| ", lambda m: m[1] or r"\s+", flat)
        return re.compile(spaced, re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Text:
    """A text of a file, with the line where it begins."""

    place: str
    line: int
    text: str


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """A text that a rule matches, with some words around it."""

    path: str
    line: int
    rule: str
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}; {self.instead}"


def read_rules(path: pathlib.Path = HERE / "prose_rules.toml") -> list[Rule]:
    return [Rule(**rule) for rule in tomllib.loads(path.read_text())["rule"]]


def texts_of_page(source: str) -> Iterator[Text]:
    """Yield the paragraphs of a Markdown page, without its code."""
    in_code, begin, lines = False, 0, list[str]()
    for number, line in enumerate([*source.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        if is_fence or in_code or not line.strip():
            if lines:
                yield Text("page", begin, "\n".join(lines))
            lines = []
        else:
            begin = begin if lines else number
            lines.append(line)
        in_code ^= is_fence


def texts_of_comments(source: str) -> Iterator[Text]:
    """Yield comments; those on consecutive lines of their own are one text."""
    begin, lines, code_line = 0, list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type != tokenize.COMMENT:
            code_line = token.end[0]
            continue
        if lines and (line != begin + len(lines) or code_line == line):
            yield Text("comment", begin, "\n".join(lines))
            lines = []
        begin = begin if lines else line
        lines.append(token.string.lstrip("# "))
    if lines:
        yield Text("comment", begin, "\n".join(lines))


def string_of(node: ast.expr) -> str | None:
    """Return the text of a literal string; what an f-string puts in is `{}`."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(string_of(value) or "{}" for value in node.values)
    return None


def texts_of_module(source: str) -> Iterator[Text]:
    """Yield the docstrings, class names, messages and comments of a module."""
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            docstrings.add(first.value)
            yield Text("summary", first.lineno, text.splitlines()[0])
            yield Text("docstring", first.lineno, text)
        if isinstance(node, ast.ClassDef):
            yield Text("class", node.lineno, node.name)
    parts = {part for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for part in n.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node not in docstrings | parts:
            text = string_of(node)
            if text and len(text.split()) > 1:
                yield Text("message", node.lineno, text)
    yield from texts_of_comments(source)


def findings_of(path: str, texts: Iterable[Text], rules: list[Rule]) -> Iterator[Finding]:
    for text in texts:
        # The names in code are another matter.
        words = re.sub(r"`[^`]*`", lambda code: "`" * len(code[0]), text.text)
        for rule in rules:
            for found in rule.compiled.finditer(words) if text.place in rule.places else ():
                line = text.line
                if text.place != "message":  # a part of one may lie on any line
                    line += text.text.count("\n", 0, found.start())
                begin, end = max(0, found.start() - 30), found.end() + 30
                excerpt = " ".join(text.text[begin:end].split())
                yield Finding(path, line, rule.name, excerpt, rule.instead)


def findings(root: pathlib.Path, rules: list[Rule]) -> list[Finding]:
    """Return those of all pages and modules of a checkout."""
    paths = set(root.glob("*.md"))
    paths |= {p for f in FOLDERS for s in ("py", "md") for p in (root / f).rglob(f"*.{s}")}
    found = set[Finding]()
    for path in paths:
        texts = texts_of_page if path.suffix == ".md" else texts_of_module
        name = path.relative_to(root).as_posix()
        found.update(findings_of(name, texts(path.read_text()), rules))
    return sorted(found)


def judge(found: list[Finding], allowed: str) -> list[str]:
    """Return the findings that are not allowed, and the entries that match no finding."""
    wrong, used = list[str](), set[str]()
    entries = [line for line in allowed.splitlines() if line.strip() and line[0] != "#"]
    for each in found:
        matching = {e for e in entries if e.startswith(f"{each.path}: ")}
        matching = {e for e in matching if e.split(": ", 1)[1] in each.text}
        used |= matching
        if not matching:
            wrong.append(str(each))
    unused = [f"{ALLOWED}: no finding has this: {e}; remove it" for e in entries if e not in used]
    return wrong + unused


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if sys.argv[1:] else HERE.parent
    allowed = root / ALLOWED
    wrong = judge(findings(root, read_rules()), allowed.read_text() if allowed.exists() else "")
    print("\n".join(wrong) or "no findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
