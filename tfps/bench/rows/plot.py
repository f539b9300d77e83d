"""The results of `tfps bench rows` as one picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.rows.results import RowsResults
from tfps.bench.style import BLUE, GREY, INK, mark_spread, quiet_axis


def write_plot(results: RowsResults, path: Path) -> Path:
    """Write a PNG: steps/s with updates of all rows and of the batch's, on a logarithmic axis."""
    pairs = results.pairs
    figure, axis = pyplot.subplots(figsize=(9, 1.8 + 0.6 * len(pairs)), layout="constrained")
    for y, (dense, rows) in enumerate(pairs):
        for case, color in ((dense, GREY[1]), (rows, BLUE[1])):
            # Dots, for a logarithmic axis has no zero that bars could begin at.
            label = "rows of the batch (RowUpdates)" if case.by_rows else "all rows"
            rate = case.steps_per_s
            axis.plot(rate.median, y, "o", color=color, markersize=8, label=label)
            mark_spread(axis, rate, y, text=f"  {rate.median:.3g}")
    names = [f"{dense.optimizer}\n{dense.mib} MiB" for dense, _ in pairs]
    axis.set_yticks(range(len(pairs)), names, fontsize=9)
    axis.set_ylim(len(pairs) - 0.4, -0.6)
    axis.set_xscale("log")
    axis.margins(x=0.15)
    axis.set_title("Steps per second", fontsize=10, color=INK, fontweight="bold", loc="left")
    axis.set_xlabel("more is better; logarithmic", fontsize=8.5)
    quiet_axis(axis)
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles[:2], labels[:2], loc="outside lower center", ncols=2, frameon=False, fontsize=8.5
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path
