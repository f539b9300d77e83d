"""What trainings without limit say of links: accuracy over bytes, and over the time they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from tfps.bench.accuracy import final_accuracy
from tfps.bench.interval import Interval
from tfps.bench.network_rows import FAST_MBIT, NETWORK_MODELS, SLOW_MBIT, TRAINED, WAYS
from tfps.bench.picture import name_axis
from tfps.bench.results import Case, Results, Spread
from tfps.bench.staleness import points_text
from tfps.bench.table import Columns, case_table

STEPS, ACCURACY = "steps", "accuracy"  # the parts of the benchmark
WORKERS, SERVERS = 2, 2
MB = 1e6
SHOWN_POINTS = 15  # below the best accuracy
BITS = 8


def training_place(way: str | None) -> tuple[str, int, str, str | None]:
    """Where the trainings of a way are among the results."""
    return ACCURACY, 0, TRAINED, way


def end_s(run: Mapping[str, Any], rate: int, *, point: int = -1) -> float:
    """When a training over links of a rate would be at a point of its curve.

    A worker computes, sends and receives one after the other, beside the other workers: what its
    share of the bytes takes is added to the seconds without limit.

    Args:
        run: of one seed.
        rate: Mbit/s of each link, each way; 0: no limit.
        point: of the curve.
    """
    seconds: float = run["curve"][point][0]
    if not rate:
        return seconds
    return seconds + BITS * run["bytes"][point] / WORKERS / (rate * 1e6)


def accuracy_gained(results: Results, way: str) -> Interval | None:
    """Final accuracy minus that of what it is compared with, seed by seed."""
    over = WAYS[way].over
    if over in (None, way):
        return None
    ours, theirs = (results.find(*training_place(each)) for each in (way, over))
    if ours is None or theirs is None:
        return None
    return Interval.of_seeds(final_accuracy(ours), final_accuracy(theirs))


def training_quantities(results: Results, case: Case) -> dict[str, Any]:
    """What the report says of trainings."""
    gained = accuracy_gained(results, case["way"])
    runs = case.runs.items()
    return {
        "final_accuracy": final_accuracy(case),
        "accuracy_gained": gained and gained.as_json(),
        "steps_per_s": case.steps_per_s,
        "moved_bytes": Spread.of(run["bytes"][-1] for _, run in runs),
        "seconds_at": {
            str(rate): Spread.of(end_s(run, rate) for _, run in runs).as_json()
            for rate in (SLOW_MBIT, FAST_MBIT, 0)
        },
        "curves": {
            seed: [
                {"bytes": moved, "seconds": round(at_s, 3), "accuracy": round(accuracy, 4)}
                for moved, (at_s, accuracy) in zip(run["bytes"], run["curve"], strict=True)
            ]
            for seed, run in runs
        },
    }


def training_table(results: Results) -> Table:
    """A row for each way."""
    cases = results.of(part=ACCURACY)
    columns: Columns = {
        "accu-\nracy %": lambda case: _median([100 * a for a in final_accuracy(case).values()]),
        "points more\n(95 %)": lambda case: points_text(accuracy_gained(results, case["way"])),
        "MB": lambda case: _median([run["bytes"][-1] / MB for run in case.runs.values()]),
        **{
            f"s at\n{title}": lambda case, rate=rate: _median(  # type: ignore[misc]
                [end_s(run, rate) for run in case.runs.values()]
            )
            for rate, title in ((SLOW_MBIT, "100"), (FAST_MBIT, "1000"), (0, "any"))
        },
    }
    seeds = max(len(case.runs) for case in cases)
    title = f"{NETWORK_MODELS[TRAINED].title}: trainings, {seeds} seed{'s' if seeds > 1 else ''}"
    return case_table(title, [WAYS[case["way"]].title for case in cases], cases, columns)


def draw_trainings(axes: Sequence[Any], cases: Sequence[Case]) -> None:
    """Draw medians of accuracy over bytes, and over the time that links of two rates take."""
    import matplotlib as mpl
    import numpy as np

    colours = mpl.colormaps["tab20"]
    labels = (
        "MB moved, both ways",
        f"seconds at {SLOW_MBIT} Mbit/s",
        f"seconds at {FAST_MBIT} Mbit/s",
    )
    for axis, rate, label in zip(axes, (None, SLOW_MBIT, FAST_MBIT), labels, strict=True):
        for number, case in enumerate(cases):
            runs = list(case.runs.values())
            points = range(len(runs[0]["curve"]))
            across = [[_across(run, rate, point) for point in points] for run in runs]
            accuracies = [[100 * accuracy for _, accuracy in run["curve"]] for run in runs]
            middle = [np.median(values, axis=0) for values in (across, accuracies)]
            axis.plot(*middle, color=colours(number), linewidth=1.5, label=WAYS[case["way"]].title)
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter("")
        best = max(accuracy for case in cases for accuracy in final_accuracy(case).values())
        axis.set_ylim(bottom=100 * best - SHOWN_POINTS)
        name_axis(axis, label=label, y_label="test accuracy, %")


def _across(run: Mapping[str, Any], rate: int | None, point: int) -> float:
    return run["bytes"][point] / MB if rate is None else end_s(run, rate, point=point)


def _median(values: Sequence[float]) -> float:
    return Spread.of(values).median
