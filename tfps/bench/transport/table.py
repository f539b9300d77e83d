"""The results of `tfps bench transport` as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from tfps.bench.table import note, number_text, plain_table, spread_text
from tfps.bench.transport.results import (
    CARRIERS,
    MLP_BYTES,
    ROWS,
    TransportCase,
    TransportResults,
    size_text,
)

NUMBERS = ("ms per\nexchange", "CPU ms", "worker's", "ps's")


def tables(results: TransportResults) -> Group:
    """Exchanges by size and carrier, then what a server's work adds to one."""
    explained = note(
        "Medians (minimum-maximum) of one exchange: a request up, and a reply of the same size "
        "down. CPU of all processes. direct goes over a unix socket within a machine, over TCP "
        "between machines, with TLS where tasks have certificates. What stands below echo are "
        "steps of a fit that computes nothing.",
        other_cores=results.other_cores,
    )
    return Group(_sizes(results.echoes), _steps(results.steps), explained)


def _sizes(cases: Sequence[TransportCase]) -> Table:
    table = plain_table("One exchange with one parameter server", ("size", *NUMBERS))
    previous = 0
    for case in cases:
        size = "" if case.size_bytes == previous else size_text(case.size_bytes)
        table.add_row(CARRIERS[case.carrier].title, size, *_numbers(case))
        previous = case.size_bytes
    return table


def _steps(cases: Sequence[TransportCase]) -> Table:
    title = f"What a server does with {size_text(MLP_BYTES)}, direct over a unix socket"
    table = plain_table(title, NUMBERS)
    for case in cases:
        table.add_row(ROWS[case.row], *_numbers(case))
    return table


def _numbers(case: TransportCase) -> list[str]:
    roles = [number_text(case.group_cpu_ms(role).median) for role in ("worker", "ps")]
    return [spread_text(case.ms), spread_text(case.cpu_ms_per_step), *roles]
