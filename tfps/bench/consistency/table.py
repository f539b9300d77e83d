"""The results of `tfps bench consistency` as tables for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table

from tfps.bench.consistency.modes import ALL_MODES
from tfps.bench.consistency.results import ConsistencyCase, ConsistencyResults
from tfps.bench.consistency.scenarios import COUNTED
from tfps.bench.goal import GOAL
from tfps.bench.report import Spread
from tfps.bench.staleness_counts import mean_staleness
from tfps.bench.table import bar_lines, goal_text, note, number_text, plain_table, spread_text

COLUMNS = ("updates/s", "exam-\nples/s", "stale-\nness", f"s to\n{GOAL:g}", "accuracy, %")
COUNTED_COLUMNS = ("examples/s", "bytes per\nexample", "accuracy, %")


def tables(results: ConsistencyResults) -> Group:
    """A table per kind of delay, then the comparisons that have an aim."""
    explained = note(
        "Medians (minimum-maximum) over the seeds. An update of a synchronous mode is a round. "
        "Examples of gradients that were applied. Staleness in updates: mean, largest. Seconds "
        f"until a look at the test accuracy saw {GOAL:g}, and accuracy at the end. Bytes pushed "
        "and pulled; local steps are those between two exchanges of a worker.",
        other_cores=results.other_cores,
    )
    parts = [
        _counted_table(results) if scenario == COUNTED else _table(results, scenario)
        for scenario in results.scenarios
    ]
    return Group(*parts, explained, *bar_lines(results.bars()))


def _table(results: ConsistencyResults, scenario: str) -> Table:
    table = plain_table(results.title(scenario), COLUMNS)
    for case in results.of_scenario(scenario):
        table.add_row(
            ALL_MODES[case.mode].title,
            spread_text(case.per_second("updates")),
            number_text(case.examples_per_s.median),
            _staleness_text(case),
            goal_text(list(case.goal_s.values()), list(case.ends_s.values())),
            _accuracy_text(case),
        )
    return table


def _counted_table(results: ConsistencyResults) -> Table:
    table = plain_table(results.title(COUNTED), COUNTED_COLUMNS)
    for case in results.of_scenario(COUNTED):
        table.add_row(
            ALL_MODES[case.mode].title,
            spread_text(case.examples_per_s),
            number_text(case.bytes_per_example.median),
            _accuracy_text(case),
        )
    return table


def _accuracy_text(case: ConsistencyCase) -> str:
    return spread_text(Spread.of([100 * each for each in case.final_accuracy.values()]))


def _staleness_text(case: ConsistencyCase) -> str:
    counts = case.staleness_updates
    return f"{mean_staleness(counts):.1f}, {max(counts, default=0)}"
