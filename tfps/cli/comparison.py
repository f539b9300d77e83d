"""The table of `tfps plan --compare`: a row for each strategy."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from tfps.placement.advice import MemoryLimits, StrategySizes, sizes_of_strategies
from tfps.placement.job_sizes import JobSizes
from tfps.units import format_bytes


def comparison_table(sizes: JobSizes, *, limits: MemoryLimits) -> Any:
    """What each strategy needs for a job, and whether that is there.

    Args:
        sizes: of the job.
        limits: the memory of its tasks.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("strategy", no_wrap=True)
    for column in ("task", "server", "per step", "fits"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("needs", no_wrap=True)
    for needed in sizes_of_strategies(sizes):
        table.add_row(*_cells(needed, limits))
    return table


def _cells(needed: StrategySizes, limits: MemoryLimits) -> list[str]:
    title = needed.strategy.title
    # Where no memory is given, nobody knows.
    yes = "" if limits == MemoryLimits() else "yes"
    fits = yes if needed.fits(limits) else "no"
    if needed.obstacle:
        return [title, "", "", "", fits, needed.obstacle]
    server = "" if needed.server_bytes is None else format_bytes(needed.server_bytes)
    amounts = [format_bytes(needed.task_bytes), server, format_bytes(needed.step_bytes)]
    return [title, *amounts, fits, needed.strategy.needs]
