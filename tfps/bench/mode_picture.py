"""The picture of `tfps bench consistency`.

A row per kind of straggler, with updates/s, accuracy over time and staleness; then bytes, accuracy
and speed of the same examples with local steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfps.bench.case import Case
from tfps.bench.goal import GOAL, final_accuracy
from tfps.bench.mode_comparison import bytes_per_example, examples_per_s, rate, staleness_updates
from tfps.bench.modes import (
    ADAPTIVE,
    ALL_MODES,
    ASYNCHRONOUS,
    BACKUP,
    BOUNDED,
    COUNTED,
    DYNAMIC,
    EVEN,
    FREE,
    LOCAL_MODES,
    SYNCHRONOUS,
)
from tfps.bench.picture import draw_spread, name_axis, name_rows, picture
from tfps.bench.report import Spread
from tfps.bench.style import BETWEEN, BLUE, DEEP, GREY, INK

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

Cases = Sequence[Case]


def draw_modes(
    cases: Mapping[str, Cases], titles: Mapping[str, str], path: Path, *, batch_size: int
) -> None:
    """Write the PNG.

    Args:
        cases: by scenario.
        titles: likewise.
        path: of the file.
        batch_size: examples in one worker's step.
    """
    scenarios = [name for name in cases if name not in (EVEN, FREE, COUNTED)]
    counted = cases.get(COUNTED, ())
    rows = len(scenarios) + bool(counted)
    ratios = {"width_ratios": (1.1, 1.2, 1)}
    with picture(path, rows, 3, size=(12, 0.8 + 2.9 * rows), gridspec_kw=ratios) as (_, axes):
        for (rates, curves, staleness), scenario in zip(axes, scenarios, strict=False):
            _draw_rates(rates, cases[scenario], cases.get(EVEN, ()), title=titles[scenario])
            _draw_curves(curves, cases[scenario])
            _draw_staleness(staleness, cases[scenario])
        if counted:
            _draw_counted(axes[-1], counted, title=titles[COUNTED], batch_size=batch_size)


def _titles(cases: Cases) -> list[str]:
    return [ALL_MODES[case["mode"]].title for case in cases]


def _draw_rates(axis: Any, cases: Cases, even: Cases, *, title: str) -> None:
    own = {case["mode"]: rate(case, "updates").median for case in even}
    for y, case in enumerate(cases):
        without = own.get(case["mode"], 0.0)
        axis.barh(y, without, 0.66, facecolor="none", edgecolor=GREY[0], linewidth=1)
        colour = COLOURS[case["mode"]]
        draw_spread(axis, y, rate(case, "updates"), colour=colour, height=0.46, beside=without)
    name_rows(axis, _titles(cases), margin=0.15)
    axis.set_xlim(left=0)
    label = "updates/s; a synchronous one is a round\nframes: without stragglers"
    name_axis(axis, title=title, label=label)


def _draw_curves(axis: Any, cases: Cases) -> None:
    for case, title in zip(cases, _titles(cases), strict=True):
        curves = [np.asarray(run["curve"]) for run in case.runs.values()]
        times_s = np.linspace(0, min(curve[-1, 0] for curve in curves), 100)
        accuracies = [np.interp(times_s, curve[:, 0], curve[:, 1]) for curve in curves]
        median = 100 * np.median(accuracies, axis=0)
        axis.plot(times_s, median, color=COLOURS[case["mode"]], linewidth=1.8, label=title)
    axis.axhline(100 * GOAL, color=INK, linestyle=":", linewidth=1)
    axis.set_ylim(70, 90)
    axis.set_xlim(left=0)
    axis.set_ylabel("test accuracy, %", fontsize=8.5)
    axis.tick_params(axis="y", labelsize=8)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    name_axis(axis, label="seconds of training")


def _draw_staleness(axis: Any, cases: Cases) -> None:
    width = 0.8 / len(cases)
    for number, case in enumerate(cases):
        counts = staleness_updates(case)
        total = max(1, sum(counts.values()))
        shares = np.zeros(STALENESS_SHOWN + 1)
        for value, count in counts.items():
            shares[min(value, STALENESS_SHOWN)] += 100 * count / total
        left = np.arange(STALENESS_SHOWN + 1) + (number - (len(cases) - 1) / 2) * width
        axis.bar(left, shares, width, color=COLOURS[case["mode"]])
    axis.set_xticks(range(0, STALENESS_SHOWN + 1, 4))
    axis.set_ylabel("% of gradients", fontsize=8.5)
    axis.tick_params(axis="y", labelsize=8)
    name_axis(axis, label=f"staleness in updates; the last is {STALENESS_SHOWN} and more")


def _draw_counted(axes: Sequence[Any], cases: Cases, *, title: str, batch_size: int) -> None:
    traffic, accuracies, speeds = axes
    for y, case in enumerate(cases):
        colour = COLOURS[case["mode"]]
        bar: dict[str, Any] = {"colour": colour, "height": 0.6, "text": "{:.0f}"}
        draw_spread(traffic, y, bytes_per_example(case), **bar)
        percent = Spread.of([100 * each for each in final_accuracy(case).values()])
        draw_spread(accuracies, y, percent, colour=colour, text=" {:.1f}", markersize=7)
        draw_spread(speeds, y, examples_per_s(case, batch_size), **bar)
    traffic.set_xscale("log")
    traffic.minorticks_off()
    for axis, label in (
        (traffic, "bytes per example, pushed and pulled"),
        (accuracies, "test accuracy at the end, %"),
        (speeds, "examples/s"),
    ):
        name_rows(axis, _titles(cases), margin=0.18)
        name_axis(axis, title=title if axis is traffic else None, label=label)
    accuracies.set_yticks([])
    speeds.set_yticks([])
    speeds.set_xlim(left=0)
