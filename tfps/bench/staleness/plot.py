"""The results of `tfps bench staleness` as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.staleness.contestants import CONTESTANTS
from tfps.bench.staleness.results import WANTED_UPDATES, StalenessResults
from tfps.bench.style import BLUE, GREY, INK, quiet_axis

MOST_ACROSS = 3
RARE = 1e-3  # of the gradients; a staleness that is rarer is not drawn


def write_plot(results: StalenessResults, path: Path) -> Path:
    """Write a PNG: the gain over each plain optimizer, and how stale gradients were."""
    bases = results.bases
    panels = len(bases) + 1
    across = min(panels, MOST_ACROSS)
    down = -(-panels // across)
    cases = max(len(results.of_base(base)) for base in bases)
    figure, axes = pyplot.subplots(
        down,
        across,
        figsize=(3.6 * across, (1.9 + 0.45 * cases) * down),
        squeeze=False,
        layout="constrained",
    )
    for axis, base in zip(axes.flat, bases, strict=False):
        _gains(axis, results, base)
    _histogram(axes.flat[panels - 1], results)
    for axis in axes.flat[panels:]:
        axis.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _gains(axis: Any, results: StalenessResults, base: str) -> None:
    plain, *cases = results.of_base(base)
    axis.axvline(0, color=GREY[1], linewidth=1)
    for y, case in enumerate(cases):
        gain = results.gain(case)
        if gain is None:
            continue
        colour = BLUE[1] if gain.low > 0 else GREY[1]
        axis.hlines(y, 100 * gain.low, 100 * gain.high, color=INK, linewidth=1)
        axis.plot(100 * gain.mean, y, "o", color=colour, markersize=7)
    labels = [f"{CONTESTANTS[case.name].title}\nrate {case.best_rate:g}" for case in cases]
    axis.set_yticks(range(len(cases)), labels, fontsize=9)
    axis.set_ylim(len(cases) - 0.5, -0.5)
    axis.margins(x=0.15)
    title = CONTESTANTS[base].title
    axis.set_title(
        f"Against {title}\n{plain.accuracy.median:.1%} with rate {plain.best_rate:g}",
        fontsize=10,
        color=INK,
        fontweight="bold",
        loc="left",
    )
    axis.set_xlabel("test accuracy, points: right is better\nmean and 95 % interval", fontsize=8.5)
    quiet_axis(axis)


def _histogram(axis: Any, results: StalenessResults) -> None:
    counts = results.staleness_updates
    total = sum(counts.values())
    low, high = WANTED_UPDATES
    for value, count in counts.items():
        if count < RARE * total:
            continue
        colour = BLUE[1] if low <= value <= high else GREY[0]
        axis.bar(value, 100 * count / total, 0.85, color=colour)
    axis.set_title("Staleness", fontsize=10, color=INK, fontweight="bold", loc="left")
    axis.set_xlabel(f"updates; {low} to {high} were wanted", fontsize=8.5)
    axis.set_ylabel("% of gradients", fontsize=8.5)
    axis.tick_params(axis="y", labelsize=8)
    quiet_axis(axis)
