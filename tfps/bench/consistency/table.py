"""The results of `tfps bench consistency` as tables for a terminal."""

from __future__ import annotations

import statistics

from rich.console import Group
from rich.table import Table

from tfps.bench.consistency.modes import MODES
from tfps.bench.consistency.results import GOAL, NEVER_S, ConsistencyCase, Results
from tfps.bench.consistency.scenarios import TITLES
from tfps.bench.report import Spread
from tfps.bench.staleness_counts import mean_staleness
from tfps.bench.table import bar_lines, note, number_text, plain_table, spread_text

COLUMNS = ("updates/s", "exam-\nples/s", "stale-\nness", f"s to\n{GOAL:g}", "accuracy, %")


def tables(results: Results) -> Group:
    """A table per kind of delay, then the comparisons that have an aim."""
    explained = note(
        "Medians (minimum-maximum) over the seeds. An update of a synchronous mode is a round. "
        "Examples of gradients that were applied. Staleness in updates: mean, largest. Seconds "
        f"until a look at the test accuracy saw {GOAL:g}, and accuracy when the time was over.",
        other_cores=results.other_cores,
    )
    parts = [_table(results, scenario) for scenario in results.scenarios]
    return Group(*parts, explained, *bar_lines(results.bars()))


def _table(results: Results, scenario: str) -> Table:
    table = plain_table(TITLES[scenario], COLUMNS)
    for case in results.of_scenario(scenario):
        accuracy = Spread.of([100 * each for each in case.final_accuracy.values()])
        table.add_row(
            MODES[case.mode].title,
            spread_text(case.per_second("updates")),
            number_text(case.examples_per_s.median),
            _staleness_text(case),
            goal_text(case),
            spread_text(accuracy),
        )
    return table


def _staleness_text(case: ConsistencyCase) -> str:
    counts = case.staleness_updates
    return f"{mean_staleness(counts):.1f}, {max(counts, default=0)}"


def goal_text(case: ConsistencyCase) -> str:
    """The median time to the goal; who has not arrived is later than who has."""
    median_s = statistics.median(case.goal_s.values())
    if median_s < NEVER_S:
        return number_text(median_s)
    return f"> {min(run['curve'][-1][0] for run in case.runs.values()):.0f}"
