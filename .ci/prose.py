#!/usr/bin/env python3
"""Check docstrings, comments, class names and pages for wording that a native reader stumbles over.

usage: .ci/prose.py [--list] [--record]

Each file may have at most as many findings as `.ci/prose.json` says; a file that it does not name,
none. A file that has moved keeps the number of the file of the same name that is gone. `--list`
prints every finding; `--record` writes the numbers anew if none has grown. The status is 1 if any
has grown.
The rules are deliberately mechanical; what they let through still has to read well.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import json
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping

ROOTS = ("tfps", "benchmarks", "tests", "examples", "docs")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
RECORD = pathlib.Path(__file__).with_name("prose.json")

Finding = tuple[int, str, str]  # the line, the rule and the text

# A docstring starts with a verb or with a noun that has an article, never with a fragment.
FRAGMENT = re.compile(
    r"^(Of|Those|These|The same|As|What|Who|Whose|With which|By which|For whom|Nobody|Somebody"
    r"|Up to here|Not where|No \w+, where)\b"
)
BANNED = {
    "an unnamed person": (
        r"\b(nobody|somebody|whoever|anybody"
        r"|who (?:gets|waits|asks|wants|keeps|fills|attaches|speaks)\b(?![^.]*\?))"
    ),
    "'so many/so long' for a number": r"\bso (?:many|long)\b(?! as)(?! that)",
    "'answers' for 'returns'": (
        r"\b(?:answers|answer) (?:the|its|a|an|what|whether|how|none|it|true|false)\b"
    ),
    "'in the place of' for 'instead of'": r"\bin the place of\b",
    "'for want of', 'at hand', 'let out', 'let go of'": (
        r"\b(?:for want of|at hand|lets? (?:it |them |him )?out|lets? go of|comes? home"
        r"|where need be)\b"
    ),
    "'is there' for 'exists'": r"\b(?:is|are|was|were) there\b(?=[.,;:)])",
}
RULES = {rule: re.compile(pattern, re.IGNORECASE) for rule, pattern in BANNED.items()}
# A class is named by a noun. Participles that are nouns of the field stay.
PARTICIPLE = re.compile(
    r"^_?(?:[A-Z]\w*)?(?:Sent|Seen|Moved|Remembered|Corrected|Remembering|Recovering|Filling|Kept|Held"
    r"|Handed\w*|Pending|Saving|Told|Made)$|^_?(?:Newcomer|Estate|Place|Descent|End|Visit)$"
)


def findings_of_text(line: int, text: str) -> Iterator[Finding]:
    for rule, pattern in RULES.items():
        if found := pattern.search(text):
            begin, end = max(0, found.start() - 30), found.end() + 30
            yield line, rule, " ".join(text[begin:end].split())


def findings_of_page(source: str) -> Iterator[Finding]:
    """Yield those outside of code blocks."""
    in_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield from findings_of_text(number, line)


def findings_of_module(source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            line, first = node.body[0].lineno, text.splitlines()[0]
            if FRAGMENT.match(first):
                yield line, "a docstring that opens with a fragment", first
            yield from findings_of_text(line, text)
        if isinstance(node, ast.ClassDef) and PARTICIPLE.match(node.name):
            yield node.lineno, "a class that no noun names", node.name
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from findings_of_text(token.start[0], token.string)


def findings(root: pathlib.Path) -> dict[str, list[Finding]]:
    """Return those of each file that has any."""
    paths = [root / page for page in PAGES]
    paths += [p for folder in ROOTS for s in ("py", "md") for p in (root / folder).rglob(f"*.{s}")]
    found = {}
    for path in sorted(paths):
        check = findings_of_page if path.suffix == ".md" else findings_of_module
        if of_file := sorted(check(path.read_text())):
            found[path.relative_to(root).as_posix()] = of_file
    return found


def allowed(path: str, record: Mapping[str, int], *, root: pathlib.Path) -> int:
    """Return how many findings a file may have."""
    if path in record:
        return record[path]
    name = pathlib.PurePosixPath(path).name
    gone = [
        number
        for old, number in record.items()
        if pathlib.PurePosixPath(old).name == name and not (root / old).exists()
    ]
    return max(gone, default=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every finding")
    parser.add_argument("--record", action="store_true", help="write the numbers anew")
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[1]
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    found = findings(root)
    grown = {p: f for p, f in found.items() if len(f) > allowed(p, record, root=root)}
    for path, of_file in (found if options.list else grown).items():
        for line, rule, text in of_file:
            print(f"{path}:{line}: {rule}: {text}")
    counts = collections.Counter(rule for each in found.values() for _, rule, _ in each)
    for rule, count in counts.most_common():
        print(f"{count:5d}  {rule}")
    print(f"{sum(counts.values()):5d}  in all, at most {sum(record.values())}")
    if grown and record:
        print("More findings than before: reword these files, see .ci/prose.py", file=sys.stderr)
        for path, of_file in grown.items():
            print(f"  {path}: {len(of_file)} > {allowed(path, record, root=root)}", file=sys.stderr)
        return 1
    if options.record:
        RECORD.write_text(json.dumps({p: len(f) for p, f in found.items()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
