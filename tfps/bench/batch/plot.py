"""The results of `tfps bench batch` as one picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.batch.choice import period_title
from tfps.bench.batch.results import BatchCase, BatchResults
from tfps.bench.goal import GOAL
from tfps.bench.report import Spread
from tfps.bench.style import BLUE, GREY, INK, quiet_axis

# Grey for plain asynchronous training; the more local steps, the darker.
COLOURS = (GREY[1], BLUE[0], BLUE[1], "#0b4ea2")


def write_plot(results: BatchResults, path: Path) -> Path:
    """Write a PNG: time to the accuracy, speed and memory over the batch."""
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 4.0), layout="constrained")
    _by_batch(axes[0], results, lambda case: case.pair.goal_s, title=f"Seconds to {GOAL:g}")
    _by_batch(axes[1], results, lambda case: case.examples_per_s, title="Examples per second")
    _by_batch(axes[2], results, lambda case: case.memory_mib, title="Memory of a worker, MiB")
    pair = results.choice.pair
    if pair is not None:
        axes[0].plot(
            pair.batch_size,
            pair.goal_s.median,
            "o",
            markersize=15,
            markerfacecolor="none",
            markeredgecolor=INK,
            label="to take",
        )
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(labels),
        frameon=False,
        fontsize=8.5,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _by_batch(
    axis: Any, results: BatchResults, spread_of: Callable[[BatchCase], Spread], *, title: str
) -> None:
    sizes = sorted({case.batch_size for case in results.cases})
    largest = 0.0
    for number, period_steps in enumerate(results.periods):
        points = [(case.batch_size, spread_of(case)) for case in results.of_period(period_steps)]
        # Who has not arrived is not drawn; the table has it.
        points = [point for point in points if math.isfinite(point[1].maximum)]
        largest = max([largest, *(spread.maximum for _, spread in points)])
        axis.errorbar(
            [size for size, _ in points],
            [spread.median for _, spread in points],
            yerr=[
                [spread.median - spread.minimum for _, spread in points],
                [spread.maximum - spread.median for _, spread in points],
            ],
            marker="o",
            markersize=4.5,
            linewidth=1.6,
            elinewidth=1,
            color=COLOURS[min(number, len(COLOURS) - 1)],
            label=period_title(period_steps),
        )
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    # The same in all three, whoever has arrived.
    axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    axis.set_ylim(0, 1.1 * largest or 1.0)
    axis.set_title(title, fontsize=10, color=INK, fontweight="bold", loc="left")
    axis.set_xlabel("examples in a worker's step", fontsize=8.5)
    axis.tick_params(axis="y", labelsize=8)
    quiet_axis(axis)
