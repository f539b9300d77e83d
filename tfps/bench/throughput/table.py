"""The results of `tfps bench throughput` as tables for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table

from tfps.bench.table import bar_lines, note, plain_table, ratio_text, spread_text
from tfps.bench.throughput.results import BASELINE, SINGLE, ThroughputResults
from tfps.bench.throughput.rows import LEGEND, TITLES
from tfps.bench.throughput.shapes import Shape

COLUMNS = ("steps/\nexec.", "steps/s", "CPU ms\nper step", "vs.\nstock", "vs.\nsingle")


def tables(results: ThroughputResults) -> Group:
    """One table per shape, then the comparisons that have an aim."""
    explained = note(
        f"Medians (minimum-maximum). {LEGEND}",
        other_cores=results.other_cores,
    )
    parts = [_table(results, shape) for shape in results.shapes]
    return Group(*parts, explained, *bar_lines(results.bars()))


def _table(results: ThroughputResults, shape: Shape) -> Table:
    table = plain_table(shape.title, COLUMNS)
    previous = ""
    for case in results.of_shape(shape):
        to_stock = None if case.row == SINGLE else results.ratio(case, BASELINE)
        table.add_row(
            "" if case.row == previous else TITLES[case.row],
            str(case.steps_per_execution),
            spread_text(case.steps_per_s),
            spread_text(case.cpu_ms_per_step),
            ratio_text(to_stock),
            ratio_text(results.ratio(case, SINGLE)),
        )
        previous = case.row
    return table
