"""The results of `tfps bench placement` as one picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.placement.results import PlacementResults
from tfps.bench.placement.shapes import MODELS
from tfps.bench.placement.ways import WAYS
from tfps.bench.style import BETWEEN, BLUE, GREY, INK, quiet_axis

COLOURS = dict(zip(WAYS, (GREY[1], GREY[0], BLUE[0], BETWEEN, BLUE[1]), strict=True))


def write_plot(results: PlacementResults, path: Path) -> Path:
    """Write a PNG: the imbalance of bytes over the number of servers, a panel for each model."""
    figure, axes = pyplot.subplots(
        1, len(results.models), figsize=(12, 3.8), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, model in zip(axes[0], results.models, strict=True):
        cases = results.of(model, next(iter(WAYS)))
        for way in WAYS:
            axis.plot(
                range(len(cases)),
                [case.bytes_imbalance for case in results.of(model, way)],
                "o-",
                markersize=5,
                color=COLOURS[way],
                label=WAYS[way].title,
            )
        shapes = [case.least_imbalance for case in cases]
        axis.plot(range(len(cases)), shapes, ":", color=INK, label="what the shapes allow")
        axis.set_xticks(range(len(cases)), [str(case.servers) for case in cases])
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter("{x:g}")
        title = MODELS[model].title
        axis.set_title(
            title[0].upper() + title[1:], fontsize=10, color=INK, fontweight="bold", loc="left"
        )
        axis.set_xlabel("parameter servers", fontsize=8.5)
        quiet_axis(axis)
    axes[0, 0].set_ylabel("bytes: fullest server / mean", fontsize=8.5)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path
