"""Reports of metrics become totals: by addition, as a maximum, or by a class's own merge."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tfps
from tests.messages import raises
from tfps.errors import ConfigError
from tfps.metrics.merging import merged_states
from tfps.metrics.state_change import Change
from tfps.runtime.program.metric_totals import MergeGroup, MetricTotals, flatten_values


class Pair(keras.metrics.Metric):
    def __init__(self, name: str = "pair") -> None:
        super().__init__(name=name)
        self.highest = self.add_variable((2,), initializer="ones", name="highest")
        self.count = self.add_variable((), initializer="zeros", name="count")

    def reset_state(self) -> None:
        self.highest.assign([1.0, 1.0])
        self.count.assign(0.0)

    def update_state(self, values: Any) -> None:
        values = keras.ops.cast(values, "float32")
        self.highest.assign(keras.ops.maximum(self.highest, keras.ops.max(values)))
        self.count.assign_add(keras.ops.cast(keras.ops.size(values), "float32"))

    def result(self) -> Any:
        return self.highest


def _merge(left: list[Any], right: list[Any]) -> list[Any]:
    return [tf.maximum(left[0], right[0]), left[1] + right[1]]


def _totals(metric: Pair) -> MetricTotals:
    """Return a mean, a metric with its own merge, a maximum, a minimum and a flag."""
    mean = keras.metrics.Mean()
    others = [
        keras.Variable(np.int32(0), dtype="int32"),
        keras.Variable(0.0),
        keras.Variable(False, dtype="bool"),
    ]
    changes = [Change.ADDED] * 2 + [Change.MIXED] * 2
    changes += [Change.RAISED, Change.LOWERED, Change.RAISED]
    neutral_values = [np.ones(2, "float32"), np.zeros((), "float32")]
    group = MergeGroup(tuple(metric.variables), neutral_values, _merge)
    return MetricTotals([*mean.variables, *metric.variables, *others], changes, [group])


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=6))
def test_totals_do_not_depend_on_the_order_of_reports(numbers: list[int]) -> None:
    totals = _totals(Pair())

    def report(number: int) -> tf.Tensor:
        values: list[Any] = [float(number), 1.0, [number, 2.0 * number], 1.0]
        values += [number, number, float(number > 0)]
        return flatten_values([tf.constant(value, tf.float64) for value in values])

    before = [np.zeros(()), np.zeros(()), np.ones(2), np.zeros(()), *map(np.array, (-60, 60, 0))]
    results = []
    for order in (numbers, numbers[::-1]):
        total = tf.constant(totals.empty_total)
        for number in order:
            total = totals.combine(total, report(number))
        results.append(totals.compute_values(total.numpy(), before))
    mean, count, highest, seen, largest, smallest, any_above = results[0]
    assert mean == sum(numbers)
    assert count == seen == len(numbers)
    assert highest.tolist() == [max([1, *numbers]), max([1, *(2 * n for n in numbers)])]
    assert largest == max(numbers)
    assert smallest == min(numbers)
    assert any_above == any(number > 0 for number in numbers)
    assert all((a == b).all() for a, b in zip(*results, strict=True))


def test_what_was_counted_before_is_merged_in() -> None:
    totals = _totals(Pair())
    before = [5.0, 2.0, [9.0, 1.0], 3.0, 4, -4.0, True]
    arrays = [np.array(value) for value in before]
    values = totals.compute_values(flatten_values(list(map(tf.constant, _COUNTED))).numpy(), arrays)
    assert [value.tolist() for value in values] == [6.0, 3.0, [9.0, 2.0], 4.0, 6, -4.0, True]
    kept = totals.compute_values(totals.empty_total, arrays)
    assert [value.tolist() for value in kept] == before


_COUNTED = [1.0, 1.0, [2.0, 2.0], 1.0, 6.0, 6.0, 0.0]


def test_a_class_has_the_merge_that_is_registered_for_it() -> None:
    class Mine(Pair):
        pass

    class Smoothed(keras.metrics.Mean):
        pass

    metric = Mine()
    assert merged_states([keras.metrics.AUC(), Smoothed(), metric]) == []
    tfps.metrics.register_merge(Mine, _merge)
    (state,) = merged_states([metric])
    assert state.merge is _merge
    metric.update_state([7.0])
    assert [value.tolist() for value in state.after_reset()] == [[1.0, 1.0], 0.0]
    assert metric.count == 1.0


@pytest.mark.parametrize(
    ("key", "cls", "fn"), [("cls", Pair(), _merge), ("cls", int, _merge), ("fn", Pair, None)]
)
def test_wrong_registrations_are_refused(key: str, cls: Any, fn: Any) -> None:
    with raises(ConfigError, f"{key}: ", received=repr(cls if key == "cls" else fn)):
        tfps.metrics.register_merge(cls, fn)
