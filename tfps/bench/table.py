"""What the tables of all benchmarks share: spreads, comparisons with an aim, and noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tfps.bench.goal import NEVER_S
from tfps.bench.report import Bar, Spread

QUIET_CORES = 0.25  # what a system does by itself; more takes time from the processes measured


def plain_table(title: str, columns: Sequence[str]) -> Table:
    """A table whose first column names the row, for a terminal of 80 columns."""
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
    return table


def case_table(
    title: str,
    names: Sequence[str],
    cases: Sequence[Any],
    columns: Mapping[str, Callable[[Any], str]],
) -> Table:
    """A row for each case, whose cells its columns say.

    Args:
        title: of the table.
        names: of the rows.
        cases: one or several for a row, as the columns want them.
        columns: by their headings.
    """
    table = plain_table(title, list(columns))
    for name, case in zip(names, cases, strict=True):
        table.add_row(name, *(cell(case) for cell in columns.values()))
    return table


def spread_text(spread: Spread) -> str:
    """The median, and the ends in brackets."""
    low, middle, high = map(number_text, (spread.minimum, spread.median, spread.maximum))
    return f"{middle} ({low}-{high})"


def number_text(value: float) -> str:
    """Three digits, and all those before the decimal point.

    Example:

    >>> number_text(0.01234), number_text(1234.5)
    ('0.0123', '1234')
    """
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def ratio_text(value: float | None) -> str:
    """A ratio, or nothing where nothing was measured."""
    return "" if value is None else f"{value:.2f}"


def goal_text(times_s: Sequence[float], ends_s: Sequence[float]) -> str:
    """The median time to the goal; who has not arrived is later than who has.

    Args:
        times_s: of each training, `NEVER_S` of those that did not arrive.
        ends_s: when they ended.

    Example:

    >>> goal_text([2.0, 3.0, NEVER_S], [4.0, 4.0, 9.0]), goal_text([NEVER_S], [9.0])
    ('3.00', '> 9')
    """
    median_s = statistics.median(times_s)
    if median_s < NEVER_S:
        return number_text(median_s)
    pairs = zip(times_s, ends_s, strict=True)
    return f"> {min(end_s for time_s, end_s in pairs if time_s == NEVER_S):.0f}"


def bar_lines(bars: Sequence[Bar]) -> list[Text]:
    """A line for each comparison that was measured."""
    return [_line(bar, bar.value) for bar in bars if bar.value is not None]


def _line(bar: Bar, value: float) -> Text:
    style = "green" if bar.holds else "yellow"
    verdict = "reached" if bar.holds else "not reached"
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
