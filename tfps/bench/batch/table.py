"""The results of `tfps bench batch` as tables for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tfps.bench.batch.choice import Choice, period_title
from tfps.bench.batch.results import BatchCase, BatchResults
from tfps.bench.goal import GOAL, NEVER_S
from tfps.bench.table import bar_lines, note, number_text, plain_table, spread_text

COLUMNS = ("learning\nrate", "examples/s", "MiB per\nworker", f"s to {GOAL:g}", "")


def tables(results: BatchResults) -> Group:
    """A table per number of local steps, the pair to take, then what has an aim."""
    count = len(results.cases[0].runs)
    seeds = f"{count} seed{'s' if count > 1 else ''}"
    explained = note(
        f"Medians (minimum-maximum) of {seeds}. Memory: the most that a worker's process had "
        f"at once, with the libraries. Seconds until a look at the test accuracy saw {GOAL:g}; "
        "where a training missed it, how long it had, and how many did not miss it.",
        other_cores=results.other_cores,
    )
    parts = [_table(results, period_steps) for period_steps in results.periods]
    return Group(*parts, explained, choice_line(results.choice), *bar_lines(results.bars()))


def _table(results: BatchResults, period_steps: int) -> Table:
    table = plain_table(_title(period_steps), COLUMNS)
    for case in results.of_period(period_steps):
        table.add_row(
            f"batch {case.batch_size}",
            f"{case.learning_rate:.2g}",
            spread_text(case.examples_per_s),
            number_text(case.memory_mib.median),
            _time_text(case),
            "<-" if results.is_chosen(case) else "",
        )
    return table


def _title(period_steps: int) -> str:
    title = period_title(period_steps)
    return title[0].upper() + title[1:]


def _time_text(case: BatchCase) -> str:
    missed_s = [case.ends_s[seed] for seed, at_s in case.goal_s.items() if at_s == NEVER_S]
    if not missed_s:
        return spread_text(case.pair.goal_s)
    return f"> {min(missed_s):.0f}, {len(case.runs) - len(missed_s)} of {len(case.runs)}"


def choice_line(choice: Choice) -> Text:
    """The pair to take and why."""
    taken = "no pair" if choice.pair is None else choice.pair.title
    return Text(f"Take {taken}: {choice.reason}.", style="bold")
