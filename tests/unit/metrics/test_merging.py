"""Reports of metrics become totals: by addition, or by a class's own merge."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tfps
from tfps.errors import ConfigError
from tfps.metrics.additivity import adds_up, updates_watched
from tfps.metrics.merging import MergedState, Merging, merging_of
from tfps.runtime.program.metric_totals import MetricTotals


class Pair(keras.metrics.Metric):
    def __init__(self, name: str = "pair") -> None:
        super().__init__(name=name)
        self.highest = self.add_variable((2,), initializer="ones", name="highest")
        self.count = self.add_variable((), initializer="zeros", name="count")

    def update_state(self, values: Any, scale: float = 1.0) -> None:
        values = scale * keras.ops.cast(values, "float32")
        self.highest.assign(keras.ops.maximum(self.highest, keras.ops.max(values)))
        self.count.assign_add(keras.ops.cast(keras.ops.size(values), "float32"))

    def result(self) -> Any:
        return self.highest


def _merge(left: list[Any], right: list[Any]) -> list[Any]:
    return [tf.maximum(left[0], right[0]), left[1] + right[1]]


def _totals(metric: Pair) -> MetricTotals:
    merging = Merging(merged=(MergedState(tuple(metric.variables), _merge),))
    total = keras.metrics.Mean()
    variables = [*total.variables, *metric.variables]
    return MetricTotals(variables, [v.numpy() for v in variables], merging)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=6))
def test_totals_do_not_depend_on_the_order_of_reports(numbers: list[int]) -> None:
    totals = _totals(Pair())

    def report(number: int) -> tf.Tensor:
        values = [float(number), 1.0, [number, 2.0 * number], 1.0]
        return totals.report([tf.constant(v, tf.float32) for v in values], [])

    results = []
    for order in (numbers, numbers[::-1]):
        total = tf.constant(totals.empty)
        for number in order:
            total = totals.combine(total, report(number))
        results.append(totals.values(total.numpy(), totals.bases))
    mean, count, highest, seen = results[0]
    assert mean == sum(numbers)
    assert count == seen == len(numbers)
    assert highest.tolist() == [max([1, *numbers]), max([1, *(2 * n for n in numbers)])]
    assert all((a == b).all() for a, b in zip(*results, strict=True))


def test_what_was_counted_before_is_merged_in() -> None:
    totals = _totals(Pair())
    before = [np.array(5.0), np.array(2.0), np.array([9.0, 1.0]), np.array(3.0)]
    total = totals.empty + 1.0
    values = totals.values(total, before)
    assert [value.tolist() for value in values] == [6.0, 3.0, [9.0, 2.0], 4.0]


def test_own_classes_are_unproven_until_registered() -> None:
    class Mine(Pair):
        pass

    class Smoothed(keras.metrics.Mean):
        pass

    assert merging_of([keras.metrics.AUC(), Smoothed()]) == Merging()
    metric = Mine()
    assert merging_of([metric]).unproven == (metric,)
    tfps.metrics.register_merge(Mine, _merge)
    assert merging_of([metric]).unproven == ()
    (state,) = merging_of([metric]).merged
    assert state.merge is _merge


@pytest.mark.parametrize(("cls", "fn"), [(Pair(), _merge), (int, _merge), (Pair, None)])
def test_wrong_registrations_are_refused(cls: Any, fn: Any) -> None:
    with pytest.raises(ConfigError, match="received"):
        tfps.metrics.register_merge(cls, fn)


@pytest.mark.parametrize(
    ("metric", "arguments", "expected"),
    [
        (Pair(), ([3.0, 2.0, 5.0],), False),
        (Pair(), ([3.0],), True),
        (keras.metrics.Mean(), ([3.0, 2.0, 5.0],), True),
        (keras.metrics.MeanSquaredError(), ([[3.0], [2.0]], [[1.0], [0.0]], [1.0, 2.0]), True),
    ],
)
def test_halves_of_a_batch_show_what_adds_up(
    metric: Any, arguments: tuple[Any, ...], expected: bool
) -> None:
    found: list[bool] = []

    def seen(metric: Any, update: Any, given: Any, options: Any) -> None:
        bases = [np.zeros(v.shape, "f4") + 0 for v in metric.variables]
        found.append(bool(adds_up(metric.variables, bases, update, given, options)))

    with updates_watched([metric], seen):
        metric.update_state(*(tf.constant(argument) for argument in arguments))
    assert found == [expected]
    metric.update_state(*(tf.constant(argument) for argument in arguments))
    assert len(found) == 1
