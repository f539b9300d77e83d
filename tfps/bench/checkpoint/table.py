"""The results of `tfps bench checkpoint` as a table for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from tfps.bench.checkpoint.results import CheckpointCase, CheckpointResults
from tfps.bench.checkpoint.ways import SAVE, TITLES
from tfps.bench.table import bar_lines, number_text, plain_table, spread_text

COLUMNS = ("seconds", "training\nrests, s", "chief\n+MiB", "server\n+MiB")


def title_of(case: CheckpointCase, *, ps: int) -> str:
    """What tables and plots call a case."""
    into = "" if case.ps == ps else f", into {case.ps} ps"
    return f"{'save' if case.what == SAVE else 'restore'}: {TITLES[case.way]}{into}"


def tables(results: CheckpointResults) -> Group:
    """A row per case, then what has an aim."""
    table = plain_table(f"{results.mib} MiB and Adam's slots, {results.ps} ps", COLUMNS)
    for case in results.cases:
        table.add_row(
            title_of(case, ps=results.ps),
            spread_text(case.spread("seconds")),
            number_text(case.spread("pause_s").median),
            f"{case.spread('chief_mib').median:.0f}",
            f"{case.spread('server_mib').median:.0f}",
        )
    explained = Text(
        "Medians (minimum-maximum). A save is done when the disk has it. Memory is by how much a "
        "process grew at most. Nothing was trained meanwhile but where it says so: there a server "
        "copies what it changes, and training rests for as much longer as one step took than the "
        "median of those before.\n",
        style="dim",
    )
    return Group(table, explained, *bar_lines(results.bars()))
