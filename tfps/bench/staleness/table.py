"""The results of `tfps bench staleness` as tables for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tfps.bench.interval import Interval
from tfps.bench.report import Spread
from tfps.bench.staleness.contestants import CONTESTANTS
from tfps.bench.staleness.results import StalenessCase, StalenessResults
from tfps.bench.staleness_counts import mean_staleness
from tfps.bench.table import bar_lines, plain_table

COLUMNS = ("learning\nrate", "test accuracy, %", "minus plain,\npoints", "")


def tables(results: StalenessResults) -> Group:
    """A table per plain optimizer, what helped, and whether gradients were stale enough."""
    parts = [_table(results, base) for base in results.bases]
    seeds = len(results.of_base(results.bases[0])[0].test_accuracy)
    mean = mean_staleness(results.staleness_updates)
    explained = Text(
        f"Staleness {mean:.1f} updates in the mean. Learning rates: the best of a grid on held-out "
        f"images; * is an end of the grid. Test accuracy: median (minimum-maximum) of {seeds} "
        "seeds, and the mean difference from the plain optimizer, seed by seed, with its 95 % "
        "interval.\n",
        style="dim",
    )
    verdicts = [_verdict(results, base) for base in results.bases]
    return Group(*parts, explained, *verdicts, *bar_lines(results.bars()))


def _table(results: StalenessResults, base: str) -> Table:
    table = plain_table(f"{CONTESTANTS[base].title}, every gradient stale", COLUMNS)
    for case in results.of_base(base):
        gain = results.gain(case)
        table.add_row(
            CONTESTANTS[case.name].title,
            f"{case.best_rate:g}{'*' if results.is_at_edge(case) else ' '}",
            accuracy_text(case.accuracy),
            "" if gain is None else gain_text(gain),
            "" if gain is None else _judgement(gain),
        )
    return table


def accuracy_text(accuracy: Spread) -> str:
    """In per cent, the median and the ends."""
    low, middle, high = accuracy.minimum, accuracy.median, accuracy.maximum
    return f"{100 * middle:.2f} ({100 * low:.2f}-{100 * high:.2f})"


def gain_text(gain: Interval) -> str:
    """A difference of accuracies in points, with its ends."""
    return f"{100 * gain.mean:+.2f} ({100 * gain.low:+.2f} to {100 * gain.high:+.2f})"


def _judgement(gain: Interval) -> str:
    if gain.low > 0:
        return "better"
    return "worse" if gain.high < 0 else "unclear"


def _verdict(results: StalenessResults, base: str) -> Text:
    plain = CONTESTANTS[base].title
    helpers: list[StalenessCase] = results.helpers(base)
    if not helpers:
        return Text(
            f"{plain}: none ends better than plain {plain} with a learning rate of its own."
        )
    names = ", ".join(CONTESTANTS[case.name].title for case in helpers)
    return Text(f"{plain}: better than plain {plain} with a learning rate of its own: {names}.")
