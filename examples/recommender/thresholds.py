"""Derives the ROC curve and the calibration from the counts of Keras's AUC."""

from __future__ import annotations

from typing import Any

import numpy as np

BINS = 20  # of the calibration


def curves_of(auc: Any) -> dict[str, Any]:
    """Return ``roc`` and ``calibration`` of what an AUC metric has counted.

    The metric counts, for each of its thresholds between 0 and 1, the examples above it that were
    clicked, and the others. So between two thresholds it is known how many examples there are, and
    how many of them were clicked.

    Args:
        auc: a `keras.metrics.AUC` behind `evaluate`.
    """
    clicked = np.asarray(auc.true_positives).astype(np.float64)
    other = np.asarray(auc.false_positives).astype(np.float64)
    # The first threshold is below 0: all examples are above it.
    roc = {
        "false_positive_rate": (other / max(other[0], 1.0)).tolist(),
        "true_positive_rate": (clicked / max(clicked[0], 1.0)).tolist(),
    }
    edges = np.clip(np.asarray(auc.thresholds, np.float64), 0.0, 1.0)
    centres = (edges[:-1] + edges[1:]) / 2
    positive, negative = -np.diff(clicked), -np.diff(other)
    bins = np.minimum((centres * BINS).astype(int), BINS - 1)

    def in_bins(values: np.ndarray) -> np.ndarray:
        return np.bincount(bins, weights=values, minlength=BINS)

    examples = in_bins(positive + negative)
    filled = examples > 0
    predicted = in_bins((positive + negative) * centres)[filled] / examples[filled]
    return {
        "roc": roc,
        "calibration": {
            "predicted": predicted.tolist(),
            "clicked": (in_bins(positive)[filled] / examples[filled]).tolist(),
            "examples": examples[filled].astype(int).tolist(),
        },
    }
