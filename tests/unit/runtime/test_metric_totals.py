"""The report of a step about its metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfps.runtime.program.metric_totals import flatten_values


@pytest.mark.parametrize(
    "values", [[1.5, 64, 0.1], [[4, 5], 3], []], ids=["scalars", "a vector", "nothing"]
)
def test_a_report_holds_numbers_end_to_end(values: list[Any]) -> None:
    report = flatten_values([tf.constant(value, tf.float32) for value in values])
    assert report.dtype == tf.float64
    flat = np.hstack([np.zeros(0, "float32"), *(np.float32(value) for value in values)])
    np.testing.assert_array_equal(report, flat.astype(np.float64))


def test_a_usual_report_takes_two_operations() -> None:
    with tf.Graph().as_default() as graph:
        flatten_values([tf.compat.v1.placeholder(tf.float32, []) for _ in "abcd"])
    types = [operation.type for operation in graph.get_operations()]
    assert sorted(types) == ["Cast", "Pack", *["Placeholder"] * 4]
