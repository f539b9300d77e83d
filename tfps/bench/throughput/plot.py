"""The results of `tfps bench throughput` as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.report import Spread
from tfps.bench.style import BLUE, GREY, INK, mark_spread, quiet_axis
from tfps.bench.throughput.results import ThroughputCase, ThroughputResults
from tfps.bench.throughput.rows import LEGEND, ROWS, TITLES
from tfps.bench.throughput.shapes import Shape

BAR_HEIGHT = 0.38
LEGEND_INCHES = 10.5  # of the legend in one line


def write_plot(results: ThroughputResults, path: Path) -> Path:
    """Write a PNG: a column per shape; steps/s above, CPU per step below; bars end at medians."""
    shapes = results.shapes
    rows = [row for row in ROWS if any(case.row == row for case in _all(results))]
    figure, axes = pyplot.subplots(
        2,
        len(shapes),
        figsize=(2.6 + 3.0 * len(shapes), 1.9 + 0.95 * len(rows)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for column, shape in enumerate(shapes):
        cases = results.of_shape(shape)
        _panel(axes[0, column], cases, rows, quantity="steps_per_s")
        _panel(axes[1, column], cases, rows, quantity="cpu_ms_per_step")
        axes[0, column].set_title(_two_lines(shape), fontsize=10, color=INK, fontweight="bold")
        axes[0, column].set_xlabel("steps/s: more is better", fontsize=8.5)
        axes[1, column].set_xlabel("CPU ms per step, all processes: less is better", fontsize=8.5)
    _legend(figure, sorted({case.steps_per_execution for case in _all(results)}))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _all(results: ThroughputResults) -> list[ThroughputCase]:
    return [case for shape in results.shapes for case in results.of_shape(shape)]


def _two_lines(shape: Shape) -> str:
    model, _, tasks = shape.title.partition(", ")
    return f"{model}\n{tasks}"


def _panel(axis: Any, cases: list[ThroughputCase], rows: list[str], *, quantity: str) -> None:
    lengths = sorted({case.steps_per_execution for case in cases})
    for case in cases:
        spread: Spread = getattr(case, quantity)
        shade = 0 if case.steps_per_execution == lengths[0] and len(lengths) > 1 else 1
        # The longest execution is the upper bar of its row; one alone stands in the middle.
        measured = [other.steps_per_execution for other in cases if other.row == case.row]
        offset = (len(measured) - 1) / 2 - sorted(measured).index(case.steps_per_execution)
        y = rows.index(case.row) + offset * BAR_HEIGHT
        axis.barh(y, spread.median, BAR_HEIGHT, color=_hue(case.row)[shade])
        mark_spread(axis, spread, y, text=_number(spread.median))
    axis.margins(x=0.22)
    axis.set_xlim(left=0)
    axis.set_yticks(range(len(rows)), [TITLES[row] for row in rows], fontsize=9)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.locator_params(axis="x", nbins=4)
    quiet_axis(axis)


def _hue(row: str) -> tuple[str, str]:
    """Lighter and darker; the lighter one is for the shortest execution."""
    return BLUE if row.startswith("tfps") else GREY


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _legend(figure: Any, lengths: list[int]) -> None:
    patches: list[Any] = [
        matplotlib.patches.Patch(color=GREY[1 if length == lengths[-1] else 0])
        for length in reversed(lengths)
    ]
    labels = [
        f"{length} step{'s' if length > 1 else ''} per execution" for length in reversed(lengths)
    ]
    patches.append(matplotlib.lines.Line2D([], [], color=INK, linewidth=1))
    # Beside the first entries where there is room, else below them; one more handle without a line.
    wide = figure.get_figwidth() > LEGEND_INCHES
    patches.append(matplotlib.lines.Line2D([], [], linewidth=0))
    explained = LEGEND if wide else LEGEND.replace(". ", ".\n")
    figure.legend(
        patches,
        [*labels, "minimum to maximum", explained],
        loc="outside lower center",
        ncols=len(patches) if wide else 1,
        frameon=False,
        fontsize=8.5,
    )
