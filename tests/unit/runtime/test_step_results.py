"""Outputs of a step that are results of metrics are computed anew for other states of those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tfps.runtime.program.program import Program
from tfps.runtime.program.step_results import StepResults

State = tuple[tf.Variable, tf.Variable]


def _trace(step: Callable[[State, tf.Tensor], Any]) -> StepResults:
    """A step with a total and a count, traced for a batch of numbers."""
    state = (tf.Variable(0.0), tf.Variable(0.0))
    captured: list[tf.Tensor] = []

    @tf.function(autograph=False)
    def traced(batch: tf.Tensor) -> Any:
        total, count = state
        total.assign_add(tf.reduce_sum(batch))
        count.assign_add(tf.cast(tf.size(batch), tf.float32))
        outputs = step(state, batch)
        graph = tf.compat.v1.get_default_graph()
        captured[:] = [graph.capture(variable.handle) for variable in state]
        return outputs

    concrete = traced.get_concrete_function(tf.TensorSpec([None]))
    specs = [tf.TensorSpec([])] * 2
    outputs = tf.nest.flatten(concrete.structured_outputs)
    return StepResults(outputs, handles=captured, specs=specs)


def _mean(state: State, batch: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(state[0], state[1])


@tf.function
def _nested_mean(total: Any, count: Any) -> tf.Tensor:
    return tf.math.divide_no_nan(total, count)


RESULTS: dict[str, tuple[Callable[..., Any], float]] = {
    "as it is": (_mean, 2.5),
    "computed on": (lambda state, batch: tf.sqrt(_mean(state, batch) + 1.5), 2.0),
    "read in a nested function": (lambda s, b: tf.function(lambda: _mean(s, b))(), 2.5),
    "passed to a nested function": (lambda s, b: _nested_mean(s[0].value(), s[1].value()), 2.5),
    "of a nested function with the batch": (
        lambda s, b: tf.function(lambda x: (tf.reduce_sum(x), _mean(s, b)))(b)[1],
        2.5,
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_result(name: str) -> None:
    step, expected = RESULTS[name]
    results = _trace(step)
    assert results.computable == [0]
    computed = results.compute([tf.constant(10.0), tf.constant(4.0)])
    assert float(computed[0]) == pytest.approx(expected)


def test_a_step_does_not_report_what_the_chief_computes() -> None:
    results = _trace(lambda s, b: {"largest": tf.reduce_max(b), "mean": _mean(s, b)})
    outputs = {"largest": tf.TensorSpec([]), "mean": tf.TensorSpec([])}
    program = Program(
        "p", lambda _: None, None, changes_variables=True, outputs=outputs, results=results
    )
    (reported,) = program.numeric_outputs
    assert reported is outputs["largest"]
    assert program.output_items == 2  # the ticket is the first


OTHERS: dict[str, Callable[..., Any]] = {
    "depends on the batch": lambda s, b: _mean(s, b) + tf.reduce_max(b),
    "is computed in a branch": lambda s, b: tf.cond(
        s[1] > 0.0, lambda: _mean(s, b), lambda: tf.constant(0.0)
    ),
    "is random": lambda s, b: _mean(s, b) + tf.random.uniform([]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_uses_metrics_and_more(name: str) -> None:
    results = _trace(OTHERS[name])
    assert results.computable == []
    assert results.not_computable == [0]
    assert results.compute([tf.constant(10.0), tf.constant(4.0)]) == {}


def test_what_uses_no_metric() -> None:
    results = _trace(lambda s, b: {"loss": tf.reduce_sum(b), "constant": tf.constant(1.0)})
    assert results.computable == []
    assert results.not_computable == []


def test_several_outputs_by_position() -> None:
    results = _trace(lambda s, b: [tf.reduce_sum(b), s[1].value(), _mean(s, b)])
    assert results.computable == [1, 2]
    computed = results.compute([tf.constant(6.0), tf.constant(3.0)])
    assert {position: float(value) for position, value in computed.items()} == {1: 3.0, 2: 2.0}
