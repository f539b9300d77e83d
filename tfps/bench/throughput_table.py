"""The results of `tfps bench throughput` as tables for a terminal."""

from __future__ import annotations

import math

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tfps.bench.report import Bar, Spread
from tfps.bench.rows import LEGEND, TITLES
from tfps.bench.throughput import BASELINE, Results, Shape

QUIET_CORES = 0.25  # what a system does by itself; more takes time from the processes measured


def tables(results: Results) -> Group:
    """One table per shape, then the comparisons that have an aim."""
    parts: list[Table | Text] = [_table(results, shape) for shape in results.shapes]
    note = Text(f"Medians (minimum-maximum). {LEGEND}\n", style="dim")
    if results.other_cores > QUIET_CORES:
        note.append(
            f"Not a quiet machine: other processes kept up to {results.other_cores:.1f} cores "
            "busy. Measure again.\n",
            style="yellow",
        )
    return Group(*parts, note, *[_line(bar) for bar in results.bars() if bar.value is not None])


def _table(results: Results, shape: Shape) -> Table:
    table = Table(
        title=shape.title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("", no_wrap=True)
    for column in ("steps/\nexec.", "steps/s", "CPU ms\nper step", "vs.\nstock", "vs.\nsingle"):
        table.add_column(column, justify="right", no_wrap=True)
    previous = ""
    for case in results.of_shape(shape):
        to_stock = None if case.row == "single_fit" else results.ratio(case, BASELINE)
        table.add_row(
            "" if case.row == previous else TITLES[case.row],
            str(case.steps_per_execution),
            _spread(case.steps_per_s),
            _spread(case.cpu_ms_per_step),
            _ratio(to_stock),
            _ratio(results.ratio(case, "single_fit")),
        )
        previous = case.row
    return table


def _spread(spread: Spread) -> str:
    low, middle, high = map(_number, (spread.minimum, spread.median, spread.maximum))
    return f"{middle} ({low}-{high})"


def _number(value: float) -> str:
    """Three digits, and all those before the decimal point."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _line(bar: Bar) -> Text:
    style = "green" if bar.holds else "yellow"
    verdict = "reached" if bar.holds else "not reached"
    return Text(f"{bar.name}: {bar.value:.2f} (aim {bar.aim:g}, {verdict})", style=style)
