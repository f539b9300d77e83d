"""The counts of Keras's AUC, as a ROC curve and as a calibration; and their picture."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from tfps.job.workload import workload_of


@pytest.fixture(scope="module")
def counted() -> tuple[keras.metrics.AUC, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    logits = random.normal(-1, 1.5, 20_000)
    labels = random.random(20_000) < 1 / (1 + np.exp(-logits))
    metric = keras.metrics.AUC(from_logits=True)
    metric.update_state(labels, logits)
    return metric, logits, labels


def test_the_area_below_the_curve_is_the_auc(module: Any, counted: Any) -> None:
    metric, _, _ = counted
    roc = module("thresholds").curves_of(metric)["roc"]
    area = -np.trapezoid(roc["true_positive_rate"], roc["false_positive_rate"])
    assert area == pytest.approx(float(metric.result()), abs=1e-6)


def test_probabilities_that_hold_lie_on_the_diagonal(module: Any, counted: Any) -> None:
    metric, logits, labels = counted
    calibration = module("thresholds").curves_of(metric)["calibration"]
    assert sum(calibration["examples"]) == len(labels)
    probabilities = 1 / (1 + np.exp(-logits))
    # Bins end at a threshold of the metric: a 199th beside a 20th.
    inside = probabilities < 10 / 199
    assert calibration["examples"][0] == inside.sum()
    assert calibration["clicked"][0] == pytest.approx(labels[inside].mean())
    for predicted, clicked, count in zip(*calibration.values(), strict=True):
        assert abs(predicted - clicked) < 0.01 + 5 * np.sqrt(0.25 / count)


def test_the_picture_says_what_was_reached(module: Any, counted: Any) -> None:
    metric, _, labels = counted
    result = {
        "title": "DLRM on planted clicks",
        "example": "recommender",
        "mode_in_words": "asynchronous",
        "cluster": {"workers": 2, "ps": 2},
        "test_auc": float(metric.result()),
        "best_auc": 0.9,
        **module("thresholds").curves_of(metric),
    }
    figure = module("pictures").roc_and_calibration(json.loads(json.dumps(result)))
    FigureCanvasAgg(figure).draw()
    texts = [text.get_text() for text in figure.findobj(Text) if text.get_visible()]
    reached = f"AUC {result['test_auc']:.4f} of at most 0.9000"
    assert f"DLRM on planted clicks: {reached}" in texts
    assert "asynchronous; 2 workers, 2 parameter servers" in texts
    assert f"dots: {len(labels):,} test examples" in texts


@pytest.mark.parametrize(
    ("best", "target", "expected"),
    [
        (0.81, 0.79, "Test AUC 0.8000 of at most 0.8100 (log loss 0.4500; target 0.79 reached)"),
        (0.81, 0.805, "Test AUC 0.8000 of at most 0.8100 (log loss 0.4500; target 0.805 MISSED)"),
        (None, None, "Test AUC 0.8000 (log loss 0.4500)"),
    ],
)
def test_the_last_line_compares_with_what_is_possible(
    best: float | None, target: float | None, expected: str
) -> None:
    result = {"test_auc": 0.8, "test_log_loss": 0.45, "best_auc": best, "target_auc": target}
    assert workload_of("recommender").last_line(result) == expected
