"""The pictures of a run: training curves, the confusion matrix and how stale gradients were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tfps.job.curves import Curves

TRAINING, VALIDATION, INK, GRID = "#1f6fb4", "#e07b22", "#333333", "#e3e3e3"
DOTS_PER_INCH = 150
LIGHT_TEXT_FROM = 0.35  # share of a row from which a cell is too dark for dark text


def draw_curves(curves: Curves, path: Path, *, title: str) -> None:
    """Write loss and accuracy over the epochs as a PNG.

    Args:
        curves: what was measured.
        path: the file.
        title: above both plots.
    """
    figure = Figure(figsize=(10, 4), layout="constrained")
    figure.suptitle(title, color=INK, fontsize=12)
    loss, accuracy = figure.subplots(1, 2)
    _draw_pair(loss, curves.loss, curves.validation_loss, label="loss")
    _draw_pair(accuracy, curves.accuracy, curves.validation_accuracy, label="accuracy")
    loss.set_ylim(bottom=0)
    accuracy.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=None))
    loss.legend(frameon=False)
    _write(figure, path)


def draw_confusion(matrix: np.ndarray, path: Path, *, classes: Sequence[str], title: str) -> None:
    """Write a confusion matrix as a PNG: rows are true classes, each cell its share of the row.

    Args:
        matrix: counts, true class by predicted class.
        path: the file.
        classes: their names.
        title: above the matrix.
    """
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    figure = Figure(figsize=(8, 7.4), layout="constrained")
    axes = figure.subplots()
    # The square root makes the confusions visible beside the diagonal.
    axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=1))
    axes.set_title(title, color=INK, fontsize=12, pad=12)
    axes.set_xlabel("predicted", color=INK)
    axes.set_ylabel("true", color=INK)
    axes.set_xticks(range(len(classes)), classes, rotation=40, ha="right")
    axes.set_yticks(range(len(classes)), classes)
    axes.set_xticks(np.arange(len(classes) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(classes) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    for row, column in np.argwhere(matrix):
        share = shares[row, column]
        axes.text(
            column,
            row,
            f"{100 * share:.0f}%" if share >= 0.01 else "<1%",
            ha="center",
            va="center",
            fontsize=9,
            color="white" if share > LIGHT_TEXT_FROM else INK,
        )
    _write(figure, path)


def draw_staleness(counts: Mapping[int, int], path: Path, *, title: str) -> None:
    """Write how many updates gradients lacked when they were applied, as a PNG.

    Args:
        counts: staleness -> number of gradients.
        path: the file.
        title: above the bars.
    """
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    total = max(1, sum(counts.values()))
    axes.bar(list(counts), [count / total for count in counts.values()], 0.8, color=TRAINING)
    axes.set_title(title, color=INK, fontsize=12)
    axes.set_xlabel("staleness of a gradient, in updates", color=INK)
    axes.set_ylabel("share of gradients", color=INK)
    axes.set_xlim(-0.6, max(counts, default=0) + 0.6)
    axes.set_ylim(0, 1.05 * max((count / total for count in counts.values()), default=1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=None))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    _write(figure, path)


def _draw_pair(
    axes: Any, training: Sequence[float], validation: Sequence[float], *, label: str
) -> None:
    epochs = range(1, len(training) + 1)
    axes.plot(epochs, training, color=TRAINING, marker="o", markersize=4, label="training")
    if validation:
        axes.plot(
            epochs, validation, color=VALIDATION, marker="o", markersize=4, label="validation"
        )
    axes.set_xlabel("epoch", color=INK)
    axes.set_title(label, color=INK, fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)


def _write(figure: Figure, path: Path) -> None:
    # Agg by hand: no window system is looked for, and pyplot's global state stays the user's.
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=DOTS_PER_INCH)
