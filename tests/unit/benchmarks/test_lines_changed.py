"""Rows of `python -m benchmarks strategies` say how many lines of a script are a strategy's own."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from benchmarks.strategy_rows import FOLDER, ROWS


def lines_changed(before: str, after: str) -> int:
    """Count the lines that are written, or deleted, to turn one script into another.

    Layout does not count. Python writes both scripts anew from their syntax trees: a line for each
    simple statement and for the head of each compound one, without comments, docstrings and
    indentation, so that a `with` around some lines is one line. A line that replaces another
    counts once.
    """
    matcher = difflib.SequenceMatcher(None, _lines(before), _lines(after), autojunk=False)
    return sum(
        max(last - first, other_last - other_first)
        for what, first, last, other_first, other_last in matcher.get_opcodes()
        if what != "equal"
    )


def _lines(source: str) -> Sequence[str]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        # The three kinds that `ast.get_docstring` takes in a script without coroutines.
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            del node.body[0]
    return [line.strip() for line in ast.unparse(tree).splitlines() if line.strip()]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_how_many_lines_its_script_changes(name: str) -> None:
    before, after = ((FOLDER / row.script).read_text() for row in (ROWS["one_process"], ROWS[name]))
    assert ROWS[name].lines_changed == lines_changed(before, after)


lines = st.lists(st.integers(0, 5).map(lambda k: f"step({k})"), max_size=12)
