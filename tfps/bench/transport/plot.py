"""The results of `tfps bench transport` as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture is written; no window is opened
from matplotlib import pyplot

from tfps.bench.style import BLUE, GREY, INK, mark_spread, quiet_axis
from tfps.bench.transport.results import (
    CARRIERS,
    MLP_BYTES,
    ROWS,
    TransportCase,
    TransportResults,
    size_text,
)

# Our carrier in blue, darkest where it is fastest; TensorFlow's in grey.
COLOURS = {"unix": "#0b4ea2", "tcp": "#4b93e6", "tls": "#a3c5ef", "grpc": "#7d8794"}
MARKERS = {"unix": "o", "tcp": "s", "tls": "^", "grpc": "D"}


def write_plot(results: TransportResults, path: Path) -> Path:
    """Write a PNG: time and CPU of an exchange over its size, and what a server's work adds."""
    figure, axes = pyplot.subplots(1, 3, figsize=(13.5, 5.0), layout="constrained")
    _by_size(axes[0], results, quantity="ms", title="Time of an exchange, ms")
    _by_size(
        axes[1], results, quantity="cpu_ms_per_step", title="CPU of an exchange, ms, all processes"
    )
    _by_work(axes[2], results.steps)
    _legend(axes[0])
    _legend(axes[2])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _legend(axis: Any) -> None:
    """Below the axis: curves and bars may be anywhere inside."""
    axis.legend(
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        loc="upper left",
        bbox_to_anchor=(0.0, -0.15),
        ncols=2,
    )


def _by_size(axis: Any, results: TransportResults, *, quantity: str, title: str) -> None:
    for name, carrier in CARRIERS.items():
        cases = [case for case in results.echoes if case.carrier == name]
        if not cases:
            continue
        sizes = [case.size_bytes for case in cases]
        spreads = [getattr(case, quantity) for case in cases]
        axis.plot(
            sizes,
            [spread.median for spread in spreads],
            color=COLOURS[name],
            marker=MARKERS[name],
            markersize=5,
            linewidth=1.6,
            label=carrier.title,
        )
        axis.vlines(
            sizes,
            [spread.minimum for spread in spreads],
            [spread.maximum for spread in spreads],
            color=COLOURS[name],
            linewidth=1,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = sorted({case.size_bytes for case in results.echoes})
    axis.set_xticks(ticks, [size_text(size) for size in ticks], fontsize=8)
    axis.minorticks_off()
    axis.tick_params(axis="y", labelsize=8)
    axis.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda y, _: f"{y:g}"))
    axis.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axis.set_title(title, fontsize=10, color=INK, fontweight="bold", loc="left")
    axis.set_xlabel("payload, up and down: below is better", fontsize=8.5)
    quiet_axis(axis)


def _by_work(axis: Any, cases: list[TransportCase]) -> None:
    """Two bars a row: the clock, and the CPU with the server's part of it."""
    for position, case in enumerate(cases):
        server = case.group_cpu_ms("ps").median
        bars = [
            (position - 0.2, case.ms.median, BLUE[1], "time"),
            (position + 0.2, case.cpu_ms_per_step.median, GREY[0], "CPU, all processes"),
            (position + 0.2, server, GREY[1], "CPU, parameter server"),
        ]
        for y, value, colour, label in bars:
            axis.barh(y, value, 0.36, color=colour, label=label if position == 0 else None)
        for y, spread in ((position - 0.2, case.ms), (position + 0.2, case.cpu_ms_per_step)):
            mark_spread(axis, spread, y, text=f"{spread.median:.3g}")
    axis.set_yticks(range(len(cases)), [ROWS[case.row] for case in cases], fontsize=9)
    axis.set_ylim(len(cases) - 0.4, -0.6)
    axis.margins(x=0.18)
    axis.set_xlim(left=0)
    axis.set_title(
        f"A push of {size_text(MLP_BYTES)}, direct over unix: ms",
        fontsize=10,
        color=INK,
        fontweight="bold",
        loc="left",
    )
    axis.set_xlabel("less is better", fontsize=8.5)
    quiet_axis(axis)
