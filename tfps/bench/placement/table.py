"""The results of `tfps bench placement` as tables for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tfps.bench.placement.results import PlacementCase, PlacementResults
from tfps.bench.placement.shapes import MODELS
from tfps.bench.placement.ways import WAYS
from tfps.bench.table import bar_lines, plain_table


def tables(results: PlacementResults) -> Group:
    """A table per model, then what has an aim."""
    explained = Text(
        "The fullest server over the mean, bytes with Adam's slots / traffic of a step; 1 is even. "
        "Of tables a step moves the batch's rows. Shapes: what no division of rows can be better "
        "than, in bytes. TensorFlow places by count, round-robin.\n",
        style="dim",
    )
    parts = [_table(results, model) for model in results.models]
    return Group(*parts, explained, *bar_lines(results.bars()))


def _table(results: PlacementResults, model: str) -> Table:
    first = results.of(model, next(iter(WAYS)))
    columns = [f"{case.servers} ps" for case in first]
    title = MODELS[model].title
    table = plain_table(title[0].upper() + title[1:], columns)
    for way in WAYS:
        cells = [_cell(case) for case in results.of(model, way)]
        table.add_row(WAYS[way].title, *cells)
    table.add_row("shapes", *(f"{case.least_imbalance:.2f}" for case in first))
    return table


def _cell(case: PlacementCase) -> str:
    return f"{_digits(case.bytes_imbalance)}/{_digits(case.traffic_imbalance)}"


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.95 else f"{value:.0f}"
