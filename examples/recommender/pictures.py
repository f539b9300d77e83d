"""The picture of a recommender: its ROC curve, and whether its probabilities hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from tfps.job.figures import GRID, INK, PALE, PERCENT, TRAINING, VALIDATION, new_figure, write_title


def roc_and_calibration(result: Mapping[str, Any]) -> Figure:
    """Left, the ROC curve; right, the share that was clicked by the predicted probability."""
    figure = new_figure(10, 5.2)
    plots = figure.subplot_mosaic(
        [["how", "how"], ["roc", "calibration"]], height_ratios=[0.001, 1]
    )
    plots["how"].set_axis_off()
    write_title(figure, result, above=plots["how"])
    roc, axes = result["roc"], plots["roc"]
    axes.plot(roc["false_positive_rate"], roc["true_positive_rate"], color=TRAINING, linewidth=2)
    axes.fill_between(
        roc["false_positive_rate"], roc["true_positive_rate"], color=TRAINING, alpha=0.1
    )
    axes.annotate(f"AUC {result['test_auc']:.4f}", (0.95, 0.06), ha="right", color=INK, fontsize=11)
    axes.set_title("ROC curve", color=INK, fontsize=11)
    axes.set_xlabel("of those not clicked, share above the threshold", color=INK)
    axes.set_ylabel("of those clicked, share above the threshold", color=INK)
    calibration, axes = result["calibration"], plots["calibration"]
    most = max(calibration["examples"])
    axes.plot(
        calibration["predicted"], calibration["clicked"], color=VALIDATION, linewidth=1.5, zorder=2
    )
    axes.scatter(
        calibration["predicted"],
        calibration["clicked"],
        s=[max(8.0, 120 * count / most) for count in calibration["examples"]],
        color=VALIDATION,
        zorder=3,
    )
    axes.annotate(
        f"dots: {sum(calibration['examples']):,} test examples",
        (0.95, 0.06),
        ha="right",
        color=INK,
        fontsize=10,
    )
    axes.set_title("calibration", color=INK, fontsize=11)
    axes.set_xlabel("predicted probability of a click", color=INK)
    axes.set_ylabel("share that was clicked", color=INK)
    for axes in (plots["roc"], plots["calibration"]):
        axes.plot([0, 1], [0, 1], color=PALE, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.005)
        axes.set_aspect("equal")
        axes.xaxis.set_major_formatter(PERCENT)
        axes.yaxis.set_major_formatter(PERCENT)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelcolor=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(GRID)
    return figure
