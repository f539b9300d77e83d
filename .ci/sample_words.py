#!/usr/bin/env python3
"""Print random docstrings and names of tfps without their code, for a reader who has not seen it.

usage: .ci/sample_words.py [--seed N] [--docstrings N] [--names N]

The same seed gives the same sample of the same code. Docstrings are shown by their first paragraph.
"""

from __future__ import annotations

import argparse
import ast
import pathlib
import random
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def attributes(node: ast.ClassDef) -> list[str]:
    """Return the names that a class and its methods assign, each once."""
    fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    found = [field.id for field in fields if isinstance(field, ast.Name)]
    stored = [e for e in ast.walk(node) if isinstance(e, ast.Attribute)]
    stored = [e for e in stored if isinstance(e.ctx, ast.Store)]
    found += [e.attr for e in stored if isinstance(e.value, ast.Name) and e.value.id == "self"]
    return list(dict.fromkeys(found))


def definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the dotted name and the first paragraph of each definition."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.ClassDef, *FUNCTIONS)):
            in_class = isinstance(node, ast.ClassDef)
            is_class = isinstance(each, ast.ClassDef)
            kind = "class" if is_class else "method" if in_class else "function"
            name = f"{prefix}.{each.name}"
            yield kind, name, (ast.get_docstring(each) or "").split("\n\n")[0]
            if isinstance(each, ast.ClassDef):
                yield from (("attribute", f"{name}.{field}", "") for field in attributes(each))
                yield from definitions(each, name)


def sample(*, seed: int, docstrings: int, names: int, package: pathlib.Path = ROOT / "tfps") -> str:
    everything = list[tuple[str, str, str]]()
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        module, tree = ".".join(parts).removesuffix(".__init__"), ast.parse(path.read_text())
        text = (ast.get_docstring(tree) or "").split("\n\n")[0]
        everything += [("module", module, text), *definitions(tree, module)]
    draw = random.Random(seed)
    documented = [each for each in everything if each[2]]
    # Names that Python gives, such as __init__, say nothing of tfps.
    named = [
        e for e in everything if e[0] != "module" and not e[1].rpartition(".")[2].startswith("__")
    ]
    lines = [f"# {docstrings} docstrings and {names} names of tfps, seed {seed}"]
    for number, (kind, name, text) in enumerate(draw.sample(documented, docstrings), 1):
        lines.append(f"{number}. {kind} {name}: {' '.join(text.split())}")
    lines.append("")
    for number, (kind, name, _) in enumerate(draw.sample(named, names), 1):
        lines.append(f"{number}. {kind} {name}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--docstrings", type=int, default=60)
    parser.add_argument("--names", type=int, default=30)
    print(sample(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
