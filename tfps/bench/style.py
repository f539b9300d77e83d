"""Colours and axes that the pictures of all benchmarks share."""

from __future__ import annotations

from typing import Any

# Grey for what is compared with, blue for this library; the darker shade for the main number.
GREY = ("#c9ced6", "#7d8794")
BLUE = ("#a9c8f0", "#1f6fd0")
INK = "#22272e"


def quiet_axis(axis: Any) -> None:
    """Draw no more of an axis than is read."""
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", labelsize=8, colors="#57606a")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color(GREY[0])
