"""What a step reports of its metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfps.metrics.merging import Merging
from tfps.runtime.program.metric_totals import MetricTotals


def _totals(bases: list[Any]) -> MetricTotals:
    arrays = [np.asarray(base, "float32") for base in bases]
    return MetricTotals([object() for _ in arrays], arrays, Merging())


@pytest.mark.parametrize(
    ("bases", "values", "added"),
    [
        ([0, 0, 0], [1.5, 64, 0.1], [1.5, 64, np.float32(0.1)]),
        ([0, 2], [1.5, 5], [1.5, 3]),
        ([[0, 0], 1], [[4, 5], 3], [4, 5, 2]),
        ([], [], []),
    ],
    ids=["scalars", "a reset to another number", "a vector", "nothing"],
)
def test_a_report_holds_what_a_step_has_added(
    bases: list[Any], values: list[Any], added: list[float]
) -> None:
    report = _totals(bases).report([tf.constant(value, tf.float32) for value in values], [])
    assert report.dtype == tf.float64
    np.testing.assert_array_equal(report, np.asarray(added, np.float64))


def test_a_usual_report_takes_two_operations() -> None:
    with tf.Graph().as_default() as graph:
        _totals([0, 0, 0, 0]).report([tf.compat.v1.placeholder(tf.float32, []) for _ in "abcd"], [])
    types = [operation.type for operation in graph.get_operations()]
    assert sorted(types) == ["Cast", "Pack", *["Placeholder"] * 4]
