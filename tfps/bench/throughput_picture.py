"""The picture of `tfps bench throughput`: for each shape steps/s above CPU per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tfps.bench.case import Case
from tfps.bench.picture import draw_spread, name_axis, name_rows, picture
from tfps.bench.report import Spread
from tfps.bench.results import Results
from tfps.bench.style import BLUE, GREY, INK
from tfps.bench.throughput_cases import of_shape, shapes
from tfps.bench.throughput_rows import LEGEND, ROWS
from tfps.bench.throughput_shapes import Shape

BAR_HEIGHT = 0.38
LEGEND_INCHES = 10.5  # of the legend in one line
MOST_ACROSS = 3  # shapes beside each other


def draw_shapes(results: Results, path: Path) -> None:
    """Draw for each shape steps/s above CPU per step; bars end at medians."""
    measured = shapes(results)
    across = min(len(measured), MOST_ACROSS)
    # A band has some shapes, and two rows of axes: rates above costs.
    bands = [measured[k : k + across] for k in range(0, len(measured), across)]
    rows = [_rows_of(results, band) for band in bands]
    heights = [0.95 + 0.475 * len(names) for names in rows for _ in range(2)]
    options = {"sharey": "row", "gridspec_kw": {"height_ratios": heights}}
    size = (2.6 + 3.0 * across, sum(heights))
    with picture(path, 2 * len(bands), across, size=size, **options) as (figure, axes):
        for axis in axes.flat:
            axis.set_axis_off()
        for number, (band, names) in enumerate(zip(bands, rows, strict=True)):
            for shape, rates, costs in zip(band, *axes[2 * number :][:2], strict=False):
                cases = of_shape(results, shape)
                _panel(rates, cases, names, lambda case: case.steps_per_s)
                _panel(costs, cases, names, lambda case: case.cpu_ms_per_step)
                model, _, tasks = shape.title.partition(", ")
                title = f"{model}\n{tasks}"
                rates.set_title(title, fontsize=10, color=INK, fontweight="bold")
                rates.set_xlabel("steps/s: more is better", fontsize=8.5)
                costs.set_xlabel("CPU ms per step, all processes: less is better", fontsize=8.5)
        _legend(figure, sorted(results.on("steps_per_execution")))


def _rows_of(results: Results, band: Sequence[Shape]) -> list[str]:
    """The rows that were measured on any of some shapes."""
    found = {case["row"] for shape in band for case in of_shape(results, shape)}
    return [row for row in ROWS if row in found]


def _panel(
    axis: Any, cases: list[Case], rows: list[str], quantity: Callable[[Case], Spread]
) -> None:
    axis.set_axis_on()
    lengths = sorted({case["steps_per_execution"] for case in cases})
    for case in cases:
        length, spread = case["steps_per_execution"], quantity(case)
        # The lighter shade is for the shortest execution.
        shade = 0 if length == lengths[0] and len(lengths) > 1 else 1
        # The longest execution is the upper bar of its row; one alone stands in the middle.
        measured = [c["steps_per_execution"] for c in cases if c["row"] == case["row"]]
        offset = (len(measured) - 1) / 2 - sorted(measured).index(length)
        colour = (BLUE if case["row"].startswith("tfps") else GREY)[shade]
        y = rows.index(case["row"]) + offset * BAR_HEIGHT
        text = "{:,.0f}" if spread.median >= 100 else "{:.3g}"
        draw_spread(axis, y, spread, colour=colour, height=BAR_HEIGHT, text=text)
    name_rows(axis, [ROWS[row].title for row in rows], margin=0.22)
    axis.set_xlim(left=0)
    axis.locator_params(axis="x", nbins=4)
    name_axis(axis)


def _legend(figure: Any, lengths: list[int]) -> None:
    longest_first = list(reversed(lengths))
    patches: list[Any] = [Patch(color=GREY[length == lengths[-1]]) for length in longest_first]
    labels = [f"{length} step{'s' if length > 1 else ''} per execution" for length in longest_first]
    patches.append(Line2D([], [], color=INK, linewidth=1))
    # Beside the first entries where there is room, else below them; one more handle without a line.
    wide = figure.get_figwidth() > LEGEND_INCHES
    patches.append(Line2D([], [], linewidth=0))
    explained = LEGEND if wide else LEGEND.replace(". ", ".\n")
    figure.legend(
        patches,
        [*labels, "minimum to maximum", explained],
        loc="outside lower center",
        ncols=len(patches) if wide else 1,
        frameon=False,
        fontsize=8.5,
    )
