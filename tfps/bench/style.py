"""Colours and axes that the pictures of all benchmarks share."""

from __future__ import annotations

from typing import Any

from tfps.bench.report import Spread

# Grey for what is compared with, blue for this library; the darker shade for the main number.
GREY = ("#c9ced6", "#7d8794")
BLUE = ("#a9c8f0", "#1f6fd0")
BETWEEN = "#649ce0"  # the two shades of blue, where there are three of this library
DEEP = "#143f78"  # where there are four
INK = "#22272e"


def quiet_axis(axis: Any) -> None:
    """Draw no more of an axis than is read."""
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", labelsize=8, colors="#57606a")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color(GREY[0])


def mark_spread(axis: Any, spread: Spread, y: float, *, text: str, beside: float = 0.0) -> None:
    """Draw how far measurements lie apart at the end of a bar, and what the bar says.

    Args:
        axis: of matplotlib.
        spread: from its minimum to its maximum.
        y: the middle of the bar.
        text: to the right of it.
        beside: and of this value, where something else ends there.
    """
    axis.hlines(y, spread.minimum, spread.maximum, color=INK, linewidth=1)
    axis.annotate(
        text,
        (max(spread.maximum, beside), y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=INK,
    )
