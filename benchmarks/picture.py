"""Pictures of results: a figure that is written, and what several benchmarks draw on its axes.

Matplotlib is imported when something is drawn: listing a benchmark's options takes no second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.results import Case, Spread

# Grey for what is compared with, blue for this library; the darker shade for the main number.
GREY = ("#c9ced6", "#7d8794")
BLUE = ("#a9c8f0", "#1f6fd0")
BETWEEN = "#649ce0"  # the two shades of blue, where there are three of this library
DEEP = "#143f78"  # where there are four
INK = "#22272e"


@contextmanager
def picture(
    path: Path, rows: int, columns: int, *, size: tuple[float, float], **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Yield a figure of `size` inches and the array of its axes; write the PNG at the end."""
    import matplotlib

    matplotlib.use("Agg")  # a picture is written; no window is opened
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained", **options
    )
    yield figure, axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def legend_below(
    figure: Any, axis: Any, *, columns: int, entries: int | None = None, has_spreads: bool = False
) -> None:
    """Explain the first labels of an axis below all axes, and the lines of spreads if wanted."""
    from matplotlib.lines import Line2D

    handles, labels = (found[:entries] for found in axis.get_legend_handles_labels())
    if has_spreads:
        handles.append(Line2D([], [], color=INK, linewidth=1))
        labels.append("minimum to maximum")
    style: dict[str, Any] = {"ncols": columns, "frameon": False, "fontsize": 8.5}
    figure.legend(handles, labels, loc="outside lower center", **style)


def name_axis(
    axis: Any, *, title: str | None = None, label: str | None = None, y_label: str | None = None
) -> None:
    """Say above an axis what it shows, and below and beside it in what."""
    if title is not None:
        axis.set_title(title, fontsize=10, color=INK, fontweight="bold", loc="left")
    if label is not None:
        axis.set_xlabel(label, fontsize=8.5)
    if y_label is not None:
        axis.set_ylabel(y_label, fontsize=8.5)
        axis.tick_params(axis="y", labelsize=8)
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

    Without a height, a share of a row, it is a dot, as on a logarithmic axis. The text stands to
    the right of the line and of a value beside it.
    """
    if height is None:
        axis.plot(spread.median, row, "o", color=colour, **style)
    else:
        axis.barh(row, spread.median, height, color=colour, **style)
    axis.hlines(row, spread.minimum, spread.maximum, color=INK, linewidth=1)
    place = (max(spread.maximum, beside), row)
    annotate(axis, text.format(spread.median), place, (4, 0), va="center", fontsize=8, color=INK)


def annotate(axis: Any, text: str, place: Any, offset: tuple[int, int], **style: Any) -> None:
    """Write text beside a place, `offset` points away."""
    axis.annotate(text, place, xytext=offset, textcoords="offset points", **style)


def draw_curves(
    axis: Any,
    curves: Iterable[tuple[Sequence[Case], Mapping[str, Any]]],
    *,
    over: str,
    quantity: Callable[[Case], Spread],
    named: Callable[[Any], str] = str,
    has_grid: bool = True,
    **texts: str | None,
) -> None:
    """Draw a quantity over one of the axes of cases.

    Args:
        axis: its scales are set before.
        curves: the cases of each, in the order of their places, and its style, as Matplotlib has
            it, and `colour`; one that has no cases is not drawn.
        over: the axis of the cases.
        quantity: is left out where it is not finite.
        named: what a place is called.
        has_grid: whether there are lines to read values at.
        texts: as `name_axis` has them.
    """
    places = set[Any]()
    for cases, style in curves:
        spreads = {case[over]: quantity(case) for case in cases}
        places |= spreads.keys()
        finite = {place: each for place, each in spreads.items() if math.isfinite(each.maximum)}
        if cases:
            _draw_curve(axis, list(finite), list(finite.values()), **style)
    axis.set_xticks(sorted(places), list(map(named, sorted(places))))
    axis.minorticks_off()
    axis.tick_params(axis="y", labelsize=8)
    if has_grid:
        axis.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    name_axis(axis, **texts)


def _draw_curve(
    axis: Any, places: Sequence[float], spreads: Sequence[Spread], *, colour: str, **style: Any
) -> None:
    """Draw a line through medians, and at each place one from minimum to maximum."""
    medians = [spread.median for spread in spreads]
    axis.plot(places, medians, color=colour, linewidth=1.6, **style)
    ends = [spread.minimum for spread in spreads], [spread.maximum for spread in spreads]
    axis.vlines(places, *ends, color=colour, linewidth=1)


def name_bars(
    axis: Any,
    names: Sequence[str],
    *,
    margin: float,
    above: float = 0.6,
    is_from_zero: bool = True,
    **texts: str | None,
) -> None:
    """Name the rows, the first on top below some room, and the axis; the margin is to the right."""
    axis.set_yticks(range(len(names)), names, fontsize=9)
    axis.set_ylim(len(names) - 0.4, -above)
    axis.margins(x=margin)
    if is_from_zero:
        axis.set_xlim(left=0)
    name_axis(axis, **texts)
