from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.bench.lines_changed import lines_changed
from tfps.bench.strategy_rows import BEFORE, ROWS, folder

BEFORE_LINES = '''
"""A script."""
import keras

def main():
    """Train."""
    model = build()
    model.fit(x, y)
'''


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


@given(lines, lines)
def test_what_is_added_is_counted(before: list[str], added: list[str]) -> None:
    assert lines_changed("\n".join(before), "\n".join(before + added)) == len(added)


def test_a_string_in_the_place_of_a_docstring_of_code_is_no_layout() -> None:
    assert lines_changed("a = 1", "a = 1\n'not a docstring'") == 1


def test_no_python_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        lines_changed("a = 1", "a = ")


def test_every_script_of_a_row_is_there_and_differs_from_that_of_one_process() -> None:
    counts = {name: row.lines_changed for name, row in ROWS.items()}
    assert counts.pop("one_process") == 0
    assert all(counts.values())
    # What a mode is does not change the script.
    assert len({counts[name] for name, row in ROWS.items() if row.mode}) == 1
    assert (folder() / BEFORE).is_file()
