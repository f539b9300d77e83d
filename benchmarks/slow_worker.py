"""Draws what a slow worker leaves of the rate: `python -m benchmarks.slow_worker [FOLDER]`.

The numbers are those of `python -m benchmarks strategies`, in docs/benchmarks/data/strategies.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent.parent / "docs/benchmarks"
NAME = "slow_worker.png"
BATCH_SIZE = 64  # examples in one worker's step
GREY, BLUE, INK = ("#c9ced6", "#7d8794"), ("#a9c8f0", "#1f6fd0"), "#22272e"
ROWS = {
    "multi_worker": "all-reduce, tf_keras\n(MultiWorkerMirroredStrategy)",
    "tensorflow": "TensorFlow's own parameter\nservers, tf_keras",
    "backup_worker": "tfps, synchronous\nwith a backup worker",
    "asynchronous": "tfps, asynchronous\n(the default)",
}


def rates() -> dict[str, tuple[float, float]]:
    """Return each row's examples per second, with four equal workers and with one that is slow."""
    cases = json.loads((FOLDER / "data/strategies.json").read_text())["cases"]
    measured = {case["row"]: case for case in cases if case["shape"] == "slow_4"}
    return {
        row: (BATCH_SIZE * measured[row]["steps_per_s"], BATCH_SIZE * measured[row]["beside_slow"])
        for row in ROWS
    }


def draw() -> Figure:
    """Draw two bars for each row, the rate before and after one worker slows down."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    for place, (row, (even, slow)) in enumerate(rates().items()):
        light, dark = BLUE if ROWS[row].startswith("tfps") else GREY
        axes.barh(place - 0.19, even, 0.36, color=light)
        axes.barh(place + 0.19, slow, 0.36, color=dark)
        text = f"keeps {slow / even:.0%}"
        axes.text(slow + 40, place + 0.2, text, va="center", color=INK, weight="bold")
    axes.set_yticks(range(len(ROWS)), list(ROWS.values()))
    axes.invert_yaxis()
    axes.set_xlabel("examples per second, more is better", color=INK)
    axes.tick_params(length=0, colors=INK)
    for side in axes.spines.values():
        side.set_visible(False)
    title = "Pale: four equal workers. Dark: one of them is five times as slow."
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11)
    return figure


def main() -> None:
    """Write the picture into the folder that is given, or beside those of the benchmarks."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "pictures"
    figure = draw()
    FigureCanvasAgg(figure)
    figure.savefig(folder / NAME, dpi=130)


if __name__ == "__main__":
    main()
