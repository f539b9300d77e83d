"""The results of `tfps bench consistency` as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.consistency.modes import (
    ADAPTIVE,
    ALL_MODES,
    ASYNCHRONOUS,
    BACKUP,
    BOUNDED,
    DYNAMIC,
    LOCAL_MODES,
    MODES,
    SYNCHRONOUS,
)
from tfps.bench.consistency.results import ConsistencyCase, ConsistencyResults
from tfps.bench.consistency.scenarios import COUNTED, EVEN, FREE
from tfps.bench.goal import GOAL
from tfps.bench.report import Spread
from tfps.bench.style import BETWEEN, BLUE, DEEP, GREY, INK, mark_spread, quiet_axis

COLOURS = {
    ASYNCHRONOUS: GREY[0],
    BOUNDED: BLUE[0],
    DYNAMIC: BETWEEN,
    SYNCHRONOUS: GREY[1],
    BACKUP: BLUE[1],
    ADAPTIVE: DEEP,
    **dict.fromkeys(LOCAL_MODES, BLUE[1]),
}
STALENESS_SHOWN = 16  # what lies above is added to the last bar


def write_plot(results: ConsistencyResults, path: Path) -> Path:
    """Write a PNG.

    A row per kind of straggler, with updates/s, accuracy over time and staleness; then bytes,
    accuracy and speed of the same examples with local steps.
    """
    scenarios = [name for name in results.scenarios if name not in (EVEN, FREE, COUNTED)]
    counted = results.of_scenario(COUNTED)
    rows = len(scenarios) + bool(counted)
    figure, axes = pyplot.subplots(
        rows,
        3,
        figsize=(12, 0.8 + 2.9 * rows),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"width_ratios": (1.1, 1.2, 1)},
    )
    for row, scenario in zip(axes, scenarios, strict=False):
        cases = results.of_scenario(scenario)
        own = {case.mode: case for case in results.of_scenario(EVEN)}
        _rates(row[0], cases, own, title=results.title(scenario))
        _curves(row[1], cases)
        _staleness(row[2], cases)
    if counted:
        _bytes(axes[-1, 0], counted, title=results.title(COUNTED))
        _accuracies(axes[-1, 1], counted)
        _speeds(axes[-1, 2], counted)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _rates(
    axis: Any, cases: list[ConsistencyCase], own: dict[str, ConsistencyCase], *, title: str
) -> None:
    for y, case in enumerate(cases):
        rate = case.per_second("updates")
        without = own[case.mode].per_second("updates").median if case.mode in own else 0.0
        axis.barh(y, without, 0.66, facecolor="none", edgecolor=GREY[0], linewidth=1)
        axis.barh(y, rate.median, 0.46, color=COLOURS[case.mode])
        mark_spread(axis, rate, y, text=f"{rate.median:.3g}", beside=without)
    axis.set_yticks(range(len(cases)), [MODES[case.mode].title for case in cases], fontsize=9)
    axis.set_ylim(len(cases) - 0.4, -0.6)
    axis.margins(x=0.15)
    axis.set_xlim(left=0)
    axis.set_title(title, fontsize=10, color=INK, fontweight="bold", loc="left")
    axis.set_xlabel(
        "updates/s; a synchronous one is a round\nframes: without stragglers", fontsize=8.5
    )
    quiet_axis(axis)


def _curves(axis: Any, cases: list[ConsistencyCase]) -> None:
    for case in cases:
        curves = [np.asarray(run["curve"]) for run in case.runs.values()]
        times_s = np.linspace(0, min(curve[-1, 0] for curve in curves), 100)
        accuracies = [np.interp(times_s, curve[:, 0], curve[:, 1]) for curve in curves]
        axis.plot(
            times_s,
            100 * np.median(accuracies, axis=0),
            color=COLOURS[case.mode],
            linewidth=1.8,
            label=MODES[case.mode].title,
        )
    axis.axhline(100 * GOAL, color=INK, linestyle=":", linewidth=1)
    axis.set_ylim(70, 90)
    axis.set_xlim(left=0)
    axis.set_xlabel("seconds of training", fontsize=8.5)
    axis.set_ylabel("test accuracy, %", fontsize=8.5)
    axis.tick_params(axis="y", labelsize=8)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    quiet_axis(axis)


def _staleness(axis: Any, cases: list[ConsistencyCase]) -> None:
    width = 0.8 / len(cases)
    for number, case in enumerate(cases):
        counts = case.staleness_updates
        total = max(1, sum(counts.values()))
        shares = np.zeros(STALENESS_SHOWN + 1)
        for value, count in counts.items():
            shares[min(value, STALENESS_SHOWN)] += 100 * count / total
        left = np.arange(STALENESS_SHOWN + 1) + (number - (len(cases) - 1) / 2) * width
        axis.bar(left, shares, width, color=COLOURS[case.mode])
    axis.set_xticks(range(0, STALENESS_SHOWN + 1, 4))
    axis.set_xlabel(f"staleness in updates; the last is {STALENESS_SHOWN} and more", fontsize=8.5)
    axis.set_ylabel("% of gradients", fontsize=8.5)
    axis.tick_params(axis="y", labelsize=8)
    quiet_axis(axis)


def _bytes(axis: Any, cases: list[ConsistencyCase], *, title: str) -> None:
    for y, case in enumerate(cases):
        traffic = case.bytes_per_example
        axis.barh(y, traffic.median, 0.6, color=COLOURS[case.mode])
        mark_spread(axis, traffic, y, text=f"{traffic.median:.0f}")
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.set_yticks(range(len(cases)), [ALL_MODES[case.mode].title for case in cases], fontsize=9)
    axis.set_title(title, fontsize=10, color=INK, fontweight="bold", loc="left")
    _finish(axis, cases, label="bytes per example, pushed and pulled")


def _accuracies(axis: Any, cases: list[ConsistencyCase]) -> None:
    for y, case in enumerate(cases):
        accuracy = Spread.of([100 * each for each in case.final_accuracy.values()])
        axis.plot(accuracy.median, y, "o", color=COLOURS[case.mode], markersize=7)
        mark_spread(axis, accuracy, y, text=f" {accuracy.median:.1f}")
    axis.set_yticks([])
    _finish(axis, cases, label="test accuracy at the end, %")


def _speeds(axis: Any, cases: list[ConsistencyCase]) -> None:
    for y, case in enumerate(cases):
        rate = case.examples_per_s
        axis.barh(y, rate.median, 0.6, color=COLOURS[case.mode])
        mark_spread(axis, rate, y, text=f"{rate.median:.0f}")
    axis.set_yticks([])
    _finish(axis, cases, label="examples/s")
    axis.set_xlim(left=0)


def _finish(axis: Any, cases: list[ConsistencyCase], *, label: str) -> None:
    axis.set_ylim(len(cases) - 0.4, -0.6)
    axis.margins(x=0.18)
    axis.set_xlabel(label, fontsize=8.5)
    quiet_axis(axis)
