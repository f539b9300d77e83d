"""The results of `tfps bench scaling` as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.scaling.results import SERVER_CPU_AIM_MS, ScalingCase, ScalingResults
from tfps.bench.style import BLUE, GREY, INK, mark_spread, quiet_axis


def write_plot(results: ScalingResults, path: Path) -> Path:
    """Write a PNG: steps/s beside what the workers would do alone; CPU of a server per push."""
    cases = results.cases
    figure, axes = pyplot.subplots(
        1, 2, figsize=(11, 1.8 + 0.9 * len(cases)), sharey=True, layout="constrained"
    )
    alone = cases[0].steps_per_s.median / cases[0].workers
    for y, case in enumerate(cases):
        ideal = case.workers * alone
        axes[0].barh(y, ideal, 0.62, color=GREY[0], label="workers times one worker's rate")
        axes[0].barh(y, case.steps_per_s.median, 0.38, color=BLUE[1], label="measured")
        kept = results.kept(case)
        share = "" if kept is None or case.workers == 1 else f"  ({kept:.1%} kept)"
        rate, cpu_ms = case.steps_per_s, case.server_cpu_ms_per_push
        mark_spread(axes[0], rate, y, text=f"{rate.median:.3g}{share}", beside=ideal)
        axes[1].barh(y, cpu_ms.median, 0.38, color=BLUE[1])
        mark_spread(axes[1], cpu_ms, y, text=f"{cpu_ms.median:.3g}")
    axes[1].axvline(SERVER_CPU_AIM_MS, color=GREY[1], linestyle="--", linewidth=1.2)
    axes[1].annotate(
        f"aim: at most {SERVER_CPU_AIM_MS:g}",
        (SERVER_CPU_AIM_MS, -0.62),
        xytext=(4, -2),
        textcoords="offset points",
        va="top",
        fontsize=8.5,
        color=GREY[1],
    )
    _finish(axes[0], cases, title="Steps per second", label="more is better")
    _finish(axes[1], cases, title="CPU of a server per push, ms", label="less is better")
    handles, labels = axes[0].get_legend_handles_labels()
    handles = [*handles[:2], matplotlib.lines.Line2D([], [], color=INK, linewidth=1)]
    figure.legend(
        handles,
        [*labels[:2], "minimum to maximum"],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8.5,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _finish(axis: Any, cases: list[ScalingCase], *, title: str, label: str) -> None:
    names = [f"{case.workers} worker" + ("s" if case.workers > 1 else "") for case in cases]
    axis.set_yticks(range(len(cases)), [f"{name}\n{cases[0].ps} ps" for name in names], fontsize=9)
    axis.set_ylim(len(cases) - 0.4, -0.65)
    axis.margins(x=0.25)
    axis.set_xlim(left=0)
    axis.set_title(title, fontsize=10, color=INK, fontweight="bold", loc="left")
    axis.set_xlabel(label, fontsize=8.5)
    quiet_axis(axis)
