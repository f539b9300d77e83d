"""How many lines of a script are a strategy's own: what it asks of who writes the script."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence


def lines_changed(before: str, after: str) -> int:
    r"""Count the lines that are written, or deleted, to turn one script into another.

    Layout does not count. Python writes both scripts anew from their syntax trees: a line for each
    simple statement and for the head of each compound one, without comments, docstrings and
    indentation, so that a `with` around some lines is one line. A line in the place of another
    counts once.

    Args:
        before: the source of the script that is changed.
        after: the source of what becomes of it.

    Raises:
        SyntaxError: one of them is no Python.

    Example:

    >>> lines_changed("a = 1\nb = 2", "with c:\n    a = 1  # as before\nb = 3")
    2
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
