"""Colours that the pictures of all benchmarks share."""

from __future__ import annotations

# Grey for what is compared with, blue for this library; the darker shade for the main number.
GREY = ("#c9ced6", "#7d8794")
BLUE = ("#a9c8f0", "#1f6fd0")
BETWEEN = "#649ce0"  # the two shades of blue, where there are three of this library
DEEP = "#143f78"  # where there are four
INK = "#22272e"
