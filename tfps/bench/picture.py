"""Pictures of results: a figure that is written, and the panels that several benchmarks have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot
from matplotlib.lines import Line2D

from tfps.bench.report import Spread
from tfps.bench.style import GREY, INK


@contextmanager
def picture(
    path: Path, rows: int, columns: int, *, size: tuple[float, float], **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Give a figure and the array of its axes; write the PNG when they are drawn on.

    Args:
        path: the file; its folder is made.
        rows: of axes.
        columns: likewise.
        size: of the figure, in inches.
        options: of `pyplot.subplots`.
    """
    figure, axes = pyplot.subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained", **options
    )
    yield figure, axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def legend_below(
    figure: Any, axis: Any, *, entries: int, columns: int, has_spreads: bool = False
) -> None:
    """Explain the first colours of an axis below all axes.

    Args:
        figure: of the axis.
        axis: whose labels are taken.
        entries: how many of them.
        columns: of the legend.
        has_spreads: lines from minimum to maximum are explained too.
    """
    handles, labels = axis.get_legend_handles_labels()
    handles, labels = handles[:entries], labels[:entries]
    if has_spreads:
        handles.append(Line2D([], [], color=INK, linewidth=1))
        labels.append("minimum to maximum")
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8.5
    )


def name_axis(axis: Any, *, title: str | None = None, label: str | None = None) -> None:
    """Say above an axis what it shows, and below in what."""
    if title is not None:
        axis.set_title(title, fontsize=10, color=INK, fontweight="bold", loc="left")
    if label is not None:
        axis.set_xlabel(label, fontsize=8.5)
    # No more of an axis than is read.
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", labelsize=8, colors="#57606a")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color(GREY[0])


def draw_spread(
    axis: Any,
    row: float,
    spread: Spread,
    *,
    colour: str,
    height: float | None = None,
    text: str = "{:.3g}",
    beside: float = 0.0,
    **style: Any,
) -> None:
    """Draw a bar to the median, the line from minimum to maximum, and what the median is.

    Args:
        axis: of matplotlib.
        row: its number from above; a part of one for several bars beside each other.
        spread: of what was measured.
        colour: of the bar.
        height: of the bar, as a share of a row; None: a dot, as on a logarithmic axis.
        text: how the median is written to the right of the line.
        beside: a value that the text stands to the right of as well.
        style: of the bar or the dot, such as its label in the legend.
    """
    if height is None:
        axis.plot(spread.median, row, "o", color=colour, **style)
    else:
        axis.barh(row, spread.median, height, color=colour, **style)
    axis.hlines(row, spread.minimum, spread.maximum, color=INK, linewidth=1)
    axis.annotate(
        text.format(spread.median),
        (max(spread.maximum, beside), row),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=INK,
    )


def name_rows(axis: Any, names: Sequence[str], *, above: float = 0.6, margin: float) -> None:
    """Name the rows of an axis, the first one on top.

    Args:
        axis: of matplotlib.
        names: of the rows.
        above: the room above the middle of the first one.
        margin: to the right, as a share of the axis.
    """
    axis.set_yticks(range(len(names)), names, fontsize=9)
    axis.set_ylim(len(names) - 0.4, -above)
    axis.margins(x=margin)
