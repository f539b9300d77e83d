"""Accuracy of trainings without a limit, over bytes and over the time that links would take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks import network_rows as rows
from benchmarks.accuracy import final_accuracy
from benchmarks.interval import Interval, points_text
from benchmarks.network_rows import FAST_MBIT, SLOW_MBIT, TRAINED, UNLIMITED, WAYS, link_title
from benchmarks.picture import name_axis
from benchmarks.results import Case, Measure, Results, Spread, cpu_ms, rate
from benchmarks.table import middle

MB = 1e6
SHOWN_POINTS = 15  # below the best accuracy
BITS = 8
ENDS = {SLOW_MBIT: "100", FAST_MBIT: "1000", UNLIMITED: "any"}  # in headings, by Mbit/s


def training_measures(results: Results) -> list[Measure]:
    """Return the measures of trainings."""
    return [
        Measure("steps_per_s", rate),
        Measure("cpu_ms_per_step", cpu_ms),
        Measure("final_accuracy", final_accuracy, "accu-\nracy %", _percent),
        Measure("accuracy_gained", partial(gained, results), "points more\n(95 %)", points_text),
        Measure("moved_bytes", moved_bytes, "MB", lambda moved: moved.median / MB),
        Measure("seconds_at", lambda case: {str(each): ends_s(case, each) for each in ENDS}),
        *(
            Measure("", partial(ends_s, mbit=each), f"s at\n{title}", middle)
            for each, title in ENDS.items()
        ),
        Measure("curves", _curves),
    ]


def gained(results: Results, case: Case) -> Interval | None:
    """Final accuracy minus that of what it is compared with, seed by seed."""
    over = results.find(*place_of("whole"))
    if over is None or over is case:
        return None
    return Interval.of_seeds(final_accuracy(case), final_accuracy(over))


def place_of(way: str) -> tuple[str, int, str, str]:
    """Return the place of a way's trainings among the results."""
    return rows.ACCURACY, UNLIMITED, TRAINED, way


def moved_bytes(case: Case) -> Spread:
    """By all workers, both ways, until the end."""
    return Spread.from_samples(run["bytes"][-1] for run in case.runs.values())


def ends_s(case: Case, mbit: int) -> Spread:
    """Return the seconds until trainings over links of a rate would be over."""
    return Spread.from_samples(end_s(run, mbit) for run in case.runs.values())


def end_s(run: Mapping[str, Any], mbit: int, *, point: int = -1) -> float:
    """Return the seconds until a training over links of a rate reaches a point of its curve.

    A worker computes, sends and receives one after the other, beside the other workers: what its
    share of the bytes takes is added to the seconds without limit.

    Args:
        run: of one seed.
        mbit: Mbit/s of each link, each way; 0: no limit.
        point: of the curve.
    """
    seconds: float = run["curve"][point][0]
    return seconds + (BITS * run["bytes"][point] / rows.WORKERS / (mbit * 1e6) if mbit else 0)


def draw_trainings(axes: Sequence[Any], cases: Sequence[Case]) -> None:
    """Draw medians of accuracy over bytes, and over the time that links of two rates take."""
    import matplotlib as mpl
    import numpy as np

    colours = mpl.colormaps["tab20"]
    best = max(accuracy for case in cases for accuracy in final_accuracy(case).values())
    for axis, mbit in zip(axes, (None, SLOW_MBIT, FAST_MBIT), strict=True):
        for number, case in enumerate(cases):
            runs = list(case.runs.values())
            points = range(len(runs[0]["curve"]))
            across = [[_across(run, mbit, point) for point in points] for run in runs]
            accuracies = [[100 * accuracy for _, accuracy in run["curve"]] for run in runs]
            medians = [np.median(values, axis=0) for values in (across, accuracies)]
            axis.plot(*medians, color=colours(number), linewidth=1.5, label=WAYS[case["way"]].title)
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter("")
        axis.set_ylim(bottom=100 * best - SHOWN_POINTS)
        label = "MB moved, both ways" if mbit is None else f"seconds at {link_title(mbit)}"
        name_axis(axis, label=label, y_label="test accuracy, %")


def _across(run: Mapping[str, Any], mbit: int | None, point: int) -> float:
    return run["bytes"][point] / MB if mbit is None else end_s(run, mbit, point=point)


def _percent(accuracies: Mapping[int, float]) -> float:
    return 100 * statistics.median(accuracies.values())


def _curves(case: Case) -> dict[int, list[dict[str, float]]]:
    return case.by_seed(
        lambda run: [
            {"bytes": moved, "seconds": round(at_s, 3), "accuracy": round(accuracy, 4)}
            for moved, (at_s, accuracy) in zip(run["bytes"], run["curve"], strict=True)
        ]
    )
