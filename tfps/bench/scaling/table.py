"""The results of `tfps bench scaling` as a table for a terminal."""

from __future__ import annotations

from rich.console import Group

from tfps.bench.scaling.results import ScalingResults
from tfps.bench.table import bar_lines, note, plain_table, ratio_text, spread_text

COLUMNS = ("steps/s", "share\nkept", "CPU ms\nper step", "server CPU ms\nper push")


def tables(results: ScalingResults) -> Group:
    """A row per number of workers, then the comparisons that have an aim."""
    ps = results.cases[-1].ps
    table = plain_table(f"Steps that sleep, {ps} parameter servers", COLUMNS)
    for case in results.cases:
        table.add_row(
            f"{case.workers} worker" + ("s" if case.workers > 1 else ""),
            spread_text(case.steps_per_s),
            ratio_text(results.kept(case)),
            spread_text(case.cpu_ms_per_step),
            spread_text(case.server_cpu_ms_per_push),
        )
    explained = note(
        "Medians (minimum-maximum). A push is one message to one server.",
        other_cores=results.other_cores,
    )
    return Group(table, explained, *bar_lines(results.bars()))
