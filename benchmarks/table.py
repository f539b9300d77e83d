"""Functions for the tables of all benchmarks: spreads, comparisons with an aim, and noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from benchmarks.results import Bar, Measure, Spread

QUIET_CORES = 0.25  # what a system does by itself; more takes time from the processes measured
# Of a row's case, by the heading: a text, a spread, a number, or None where there is none.
Columns = Mapping[str, Callable[[Any], str | Spread | float | None]]


def case_table(title: str, names: Sequence[str], cases: Sequence[Any], columns: Columns) -> Table:
    """Return a table with a row for each group of cases, at most 80 columns wide."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, case in zip(names, cases, strict=True):
        table.add_row(name, *(cell_text(cell(case)) for cell in columns.values()))
    return table


def columns_of(measures: Iterable[Measure]) -> Columns:
    """Return a function for the cells of each measure that has a heading."""
    return {each.heading: each.cell for each in measures if each.heading is not None}


def cell_text(value: str | Spread | float | None) -> str:
    """Format a value for a cell of a table."""
    if isinstance(value, Spread):
        return spread_text(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else number_text(value)


def spread_text(spread: Spread) -> str:
    """Return the median, and the ends in brackets."""
    low, middle, high = map(number_text, (spread.minimum, spread.median, spread.maximum))
    return f"{middle} ({low}-{high})"


def number_text(value: float) -> str:
    """Three digits, and all those before the decimal point.

    >>> number_text(0.01234), number_text(1234.5), number_text(-1.157)
    ('0.0123', '1234', '-1.16')
    """
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def middle(spread: Spread | None) -> float | None:
    """Return the median alone, where a column has no room for the ends."""
    return None if spread is None else spread.median


def ratio_text(value: float | None) -> str:
    """Return a ratio, or nothing where nothing was measured."""
    return "" if value is None else f"{value:.2f}"


def bar_lines(bars: Sequence[Bar]) -> list[Text]:
    """Return a line for each comparison that was measured."""
    return [_line(bar, bar.value) for bar in bars if bar.value is not None]


def _line(bar: Bar, value: float) -> Text:
    style, verdict = ("green", "reached") if bar.holds else ("yellow", "not reached")
    return Text(f"{bar.name}: {value:.2f} (aim {bar.limit}, {verdict})", style=style)


def note(text: str, *, other_cores: float) -> Text:
    """Explain a table, and warn where other work ran beside the measurement."""
    explained = Text(f"{text}\n", style="dim")
    if other_cores > QUIET_CORES:
        explained.append(
            f"Not a quiet machine: other processes kept up to {other_cores:.1f} cores "
            "busy. Measure again.\n",
            style="yellow",
        )
    return explained
