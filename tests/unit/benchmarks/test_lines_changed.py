"""Rows of `python -m benchmarks strategies` say how many lines of a script are a strategy's own."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.strategy_rows import FOLDER, ROWS

BEFORE_LINES = '''
"""A script."""
import keras

def main():
    """Train."""
    model = build()
    model.fit(x, y)
'''


def lines_changed(before: str, after: str) -> int:
    """Count the lines that are written, or deleted, to turn one script into another.

    Layout does not count. Python writes both scripts anew from their syntax trees: a line for each
    simple statement and for the head of each compound one, without comments, docstrings and
    indentation, so that a `with` around some lines is one line. A line in the place of another
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


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("model.fit(x, y)", "model.fit(x, y)", 0),
        ('"""A script."""', '"""Another one.\n\nLonger."""\n# And said why.', 0),
        ("model.fit(x, y)", "model.fit(\n        x,\n        y,\n    )", 0),
        ("    model = build()", "    with scope():\n        model = build()", 1),
        ("import keras", "import keras\nimport tfps", 1),
        ("model.fit(x, y)", "model.fit(x, y, batch_size=64)", 1),
        ("    model.fit(x, y)", "    fit(x)\n    fit(y)\n    end()", 3),
        ("    model = build()\n", "", 1),
        ("    model = build()", "    model = 'build()'", 1),
    ],
)
def test_layout_does_not_count_and_a_replaced_line_counts_once(
    old: str, new: str, count: int
) -> None:
    assert old in BEFORE_LINES
    assert lines_changed(BEFORE_LINES, BEFORE_LINES.replace(old, new)) == count


lines = st.lists(st.integers(0, 5).map(lambda k: f"step({k})"), max_size=12)


@given(lines, lines)
def test_it_lies_between_the_difference_of_lengths_and_the_longer_script(
    before: list[str], after: list[str]
) -> None:
    count = lines_changed("\n".join(before), "\n".join(after))
    assert abs(len(before) - len(after)) <= count <= len(before) + len(after)
    assert (count == 0) == (before == after)
    assert lines_changed("\n".join(before), "\n".join(before + after)) == len(after)


def test_a_string_in_the_place_of_a_docstring_of_code_is_no_layout() -> None:
    assert lines_changed("a = 1", "a = 1\n'not a docstring'") == 1
