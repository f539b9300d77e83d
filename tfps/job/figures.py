"""Draws the pictures of a run, from `result.json` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tfps.config.schema import DEFAULT_EXAMPLE
from tfps.consistency.ledger import STALENESS_BINS
from tfps.job.epochs import get_metric_by_epoch
from tfps.job.workload import Draw, Workload, workload_of
from tfps.units import counted

TRAINING, VALIDATION, INK, PALE, GRID = "#1f6fb4", "#e07b22", "#333333", "#666666", "#e3e3e3"
DOTS_PER_INCH = 150
MAX_UPRIGHT_NUMBERS = 14  # more bars than that are too narrow for upright numbers
MIN_PLACES = 4  # for bars: a single bar would be as wide as the picture
CHARACTERS_PER_INCH = 11  # of the line below the title
PERCENT = FuncFormatter(lambda share, _: f"{round(100 * share, 6):g}%")


def draw_all(result: Mapping[str, Any], folder: Path) -> None:
    """Draw every picture of a run, and write the files.

    Args:
        result: the contents of `result.json`.
        folder: the folder of the pictures.

    Example:

    ```python
    draw_all(json.loads(Path("runs/fashion_mnist/result.json").read_text()), Path("pictures"))
    ```
    """
    workload = workload_of(result.get("example", DEFAULT_EXAMPLE))
    for name, draw in pictures_of(workload).items():
        figure = draw(result)
        # Agg directly: needs no window system, and leaves pyplot's global state to the user.
        FigureCanvasAgg(figure)
        figure.savefig(folder / name, dpi=DOTS_PER_INCH)


def draw_curves(result: Mapping[str, Any], *, metric: str) -> Figure:
    """Draw the loss and a metric over the epochs.

    Args:
        result: the contents of `result.json`.
        metric: the metric's name in Keras.
    """
    figure = new_figure(10, 4.5)
    plots = figure.subplot_mosaic([["how", "how"], ["loss", metric]], height_ratios=[0.001, 1])
    plots["how"].set_axis_off()
    write_title(figure, result, above=plots["how"])
    loss, beside = plots["loss"], plots[metric]
    _draw_pair(loss, result["history"], "loss")
    _draw_pair(beside, result["history"], metric)
    loss.set_ylim(0, 1.02 * loss.get_ylim()[1])
    if metric == "accuracy":
        beside.yaxis.set_major_formatter(PERCENT)
    loss.legend(frameon=False, labelcolor=INK)
    return figure


def draw_staleness(result: Mapping[str, Any]) -> Figure:
    """Draw the distribution of staleness: how many updates gradients lacked."""
    counts = {int(missed): n for missed, n in (result["gradient_staleness_updates"] or {}).items()}
    total = max(1, sum(counts.values()))
    shares = {missed: count / total for missed, count in counts.items()}
    mean = sum(missed * share for missed, share in shares.items())
    mean_text = f"gradients lacked {mean:.2f} updates on average" if counts else ""
    figure = new_figure(8, 4.5)
    axes = figure.subplots()
    write_title(figure, result, above=axes, outcome=mean_text)
    # The edge keeps a bar visible that would be less than a dot high.
    axes.bar(
        list(shares), list(shares.values()), 0.8, color=TRAINING, edgecolor=TRAINING, linewidth=0.8
    )
    last = max(counts, default=0)
    upright = last < MAX_UPRIGHT_NUMBERS
    for missed, share in shares.items():
        axes.annotate(
            format_percent(share),
            (missed, share),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            rotation=0 if upright else 90,
            fontsize=9 if upright else 7,
            color=INK,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )
    if counts:
        label = f"mean of {counted(total, 'gradient')}"
        axes.axvline(mean, color=VALIDATION, linestyle=(0, (4, 3)), zorder=0.6, label=label)
        axes.legend(framealpha=1, edgecolor="white", labelcolor=INK, loc="upper right")
    axes.set_xlabel("staleness of a gradient, in updates", color=INK)
    axes.set_ylabel("share of gradients", color=INK)
    axes.set_xlim(-0.6, max(last, MIN_PLACES) + 0.6)
    axes.set_ylim(0, 1.18 * max(shares.values(), default=1))  # room for the numbers
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if last == STALENESS_BINS - 1:  # the bin of all larger values
        places = range(0, last, 7)
        axes.set_xticks([*places, last], [*map(str, places), f"{last}+"])
    axes.yaxis.set_major_formatter(PERCENT)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    return figure


def pictures_of(workload: Workload) -> dict[str, Draw]:
    """Return the functions that draw a run's pictures, by the names of the files.

    Args:
        workload: the workload of the run's example.
    """
    return {
        "training_curves.png": partial(draw_curves, metric=workload.metric),
        **workload.pictures,
        "staleness.png": draw_staleness,
    }


def format_percent(share: float) -> str:
    """Format a share as a percentage; a share above 0 never reads as 0%.

    Example:

    >>> [format_percent(share) for share in (0.904, 0.0149, 0.0031, 0.0004)]
    ['90%', '1%', '0.3%', '<0.1%']
    """
    if share >= 0.00995:
        return f"{100 * share:.0f}%"
    return f"{100 * share:.1f}%" if share >= 0.0005 else "<0.1%"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure with the common margins.

    Args:
        width: the width in inches.
        height: the height in inches.
    """
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.07)
    return figure


def write_title(
    figure: Figure, result: Mapping[str, Any], *, above: Any, outcome: str | None = None
) -> None:
    """Write the title: what was trained and its result, and below it the mode and the cluster.

    Args:
        figure: the figure.
        result: the contents of `result.json`.
        above: the axes below the second line.
        outcome: the result; None is how well the model does.
    """
    if outcome is None:
        outcome = workload_of(result.get("example", DEFAULT_EXAMPLE)).reached(result)
    title = f"{result['title']}: {outcome}" if outcome else result["title"]
    size = result["cluster"]
    mode = result["mode_in_words"]
    tasks = f"{counted(size['workers'], 'worker')}, {counted(size['ps'], 'parameter server')}"
    is_short = len(f"{mode}; {tasks}") <= CHARACTERS_PER_INCH * figure.get_figwidth()
    how = f"{mode}; {tasks}" if is_short else f"{mode}\n{tasks}"
    figure.suptitle(title, color=INK, fontsize=13, fontweight="bold")
    above.set_title(how, color=PALE, fontsize=10.5, pad=10)


def _draw_pair(axes: Any, history: Sequence[Mapping[str, Any]], name: str) -> None:
    for metric, color, label in (
        (name, TRAINING, "training"),
        (f"val_{name}", VALIDATION, "validation"),
    ):
        points = get_metric_by_epoch(history, metric)
        axes.plot(
            list(points), list(points.values()), color=color, marker="o", markersize=4, label=label
        )
    last = len(history)
    # The axis ends above 0: there is no epoch 0.
    beside = min(0.5, 0.1 + 0.03 * last)
    axes.set_xlim(1 - beside, max(1, last) + beside)
    axes.set_xlabel("epoch", color=INK)
    axes.set_title(name, color=INK, fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
