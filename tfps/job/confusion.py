"""The picture of a confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from tfps.job.figures import INK, entitle, new_figure, percent

LIGHT_TEXT_FROM = 0.35  # share of a row from which a cell is too dark for dark text


def confusion(result: Mapping[str, Any]) -> Figure:
    """A confusion matrix: rows are true classes, each cell its share of the row."""
    matrix, classes = np.asarray(result["confusion_matrix"]), result["classes"]
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    figure = new_figure(8, 7.9)
    axes = figure.subplots()
    entitle(figure, result, above=axes)
    # The square root makes the confusions visible beside the diagonal.
    axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=1))
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
            percent(share),
            ha="center",
            va="center",
            fontsize=9,
            color="white" if share > LIGHT_TEXT_FROM else INK,
        )
    return figure
