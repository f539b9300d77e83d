"""The results of `tfps bench rows` as a table for a terminal."""

from __future__ import annotations

from rich.console import Group

from tfps.bench.rows.results import RowsResults
from tfps.bench.table import bar_lines, note, plain_table, spread_text

COLUMNS = ("steps/s,\nall rows", "steps/s,\nrows of the batch", "CPU ms per step,\nrows")


def tables(results: RowsResults) -> Group:
    """A row per optimizer and table, then the comparisons that have an aim."""
    table = plain_table("Updates of one embedding table on one server", COLUMNS)
    for dense, rows in results.pairs:
        table.add_row(
            f"{dense.optimizer}, {dense.mib} MiB",
            spread_text(dense.steps_per_s),
            spread_text(rows.steps_per_s),
            spread_text(rows.cpu_ms_per_step),
        )
    explained = note("Medians (minimum-maximum).", other_cores=results.other_cores)
    return Group(table, explained, *bar_lines(results.bars()))
