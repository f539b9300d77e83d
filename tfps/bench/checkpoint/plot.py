"""The results of `tfps bench checkpoint` as one picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.checkpoint.results import CheckpointResults
from tfps.bench.checkpoint.table import title_of
from tfps.bench.checkpoint.ways import TENSORFLOW
from tfps.bench.style import BLUE, GREY, INK, quiet_axis


def write_plot(results: CheckpointResults, path: Path) -> Path:
    """Write a PNG: the seconds of each case, and of them those in which training rests."""
    figure, axis = pyplot.subplots(figsize=(9, 3.8), layout="constrained")
    cases = list(reversed(results.cases))
    titles = [title_of(case, ps=results.ps) for case in cases]
    theirs = [case.way == TENSORFLOW for case in cases]
    for name, shade, label in (("seconds", 0, "in all"), ("pause_s", 1, "training rests")):
        axis.barh(
            titles,
            [case.spread(name).median for case in cases],
            color=[GREY[shade] if other else BLUE[shade] for other in theirs],
            height=0.7 if shade == 0 else 0.4,
            label=label,
        )
    axis.set_xlabel("seconds; the inner bar: training rests", fontsize=8.5)
    axis.set_title(
        f"{results.mib} MiB and Adam's slots",
        fontsize=10,
        color=INK,
        fontweight="bold",
        loc="left",
    )
    quiet_axis(axis)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path
