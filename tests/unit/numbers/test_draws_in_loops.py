"""A layer that draws in loops, branches and functions: the numbers of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.drawing import DRAWS, Draw, Noise, distinct, met_in_fit
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)


def _while_loop(draw: Callable[[], Any], x: Any) -> Any:
    array = tf.TensorArray(tf.float32, DRAWS)
    body = lambda i, a: (i + 1, a.write(i, draw()))  # noqa: E731
    return tf.while_loop(lambda i, _: i < DRAWS, body, (0, array))[1].stack()


def _fori_loop(draw: Callable[[], Any], x: Any) -> Any:
    def body(i: Any, drawn: Any) -> Any:
        return keras.ops.slice_update(drawn, [i], keras.ops.reshape(draw(), (1,)))

    return keras.ops.fori_loop(0, DRAWS, body, keras.ops.zeros((DRAWS,)))


def _scan(draw: Callable[[], Any], x: Any) -> Any:
    return keras.ops.scan(lambda carry, _: (carry, draw()), 0.0, length=DRAWS)[1]


def _map(draw: Callable[[], Any], x: Any) -> Any:
    return tf.map_fn(lambda i: draw() + 0.0 * i, tf.zeros((DRAWS,)))


def _branch(draw: Callable[[], Any], x: Any) -> Any:
    """Examples of odd numbers draw, others do not."""
    return tf.cond(
        x[0, 0] % 2 > 0,
        lambda: tf.stack([draw() for _ in range(DRAWS)]),
        lambda: -x[0, 0] - tf.range(DRAWS, dtype=tf.float32) / DRAWS,
    )


def _both_branches(draw: Callable[[], Any], x: Any) -> Any:
    """Draw in either branch: neither sees what the other has made of the generator's state."""
    drawn = lambda: tf.stack([draw() for _ in range(DRAWS)])  # noqa: E731
    return tf.cond(x[0, 0] % 2 > 0, drawn, lambda: 2.0 * drawn())


def _after_a_loop(draw: Callable[[], Any], x: Any) -> Any:
    return tf.concat([_while_loop(draw, x)[1:], [draw()]], 0)


def _nested(draw: Callable[[], Any], x: Any) -> Any:
    """Draw as often as the example's number says, in a loop of loops."""
    inner = lambda j, total: (j + 1, total + draw())  # noqa: E731

    def outer(i: Any, a: Any) -> Any:
        drawn = tf.while_loop(lambda j, _: j <= tf.cast(x[0, 0], tf.int32), inner, (0, 0.0))[1]
        return i + 1, a.write(i, drawn)

    array = tf.TensorArray(tf.float32, DRAWS)
    return tf.while_loop(lambda i, _: i < DRAWS, outer, (0, array))[1].stack()


def _function(draw: Callable[[], Any], x: Any) -> Any:
    """A tf.function that is traced once and called several times."""
    function = tf.function(draw)
    return tf.stack([function() for _ in range(DRAWS)])


def _in_turn(draw: Callable[[], Any], x: Any) -> Any:
    return tf.stack([draw() for _ in range(DRAWS)])


def _without_a_seed(draw: Callable[[], Any], x: Any) -> Any:
    """The generator of the whole program, which does not count its draws."""
    return tf.stack([keras.random.normal(()) for _ in range(DRAWS)])


class _DrawingCell(keras.layers.Layer):
    """A cell of a recurrent layer that draws at each step."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        super().__init__()
        self.draw, self.state_size, self.output_size = draw, 1, 1

    def call(self, inputs: Any, states: Any, training: Any = None) -> Any:
        return inputs * 0 + self.draw(), states


def _recurrent(draw: Callable[[], Any], x: Any) -> Any:
    layer = keras.layers.RNN(_DrawingCell(draw), return_sequences=True)
    return layer(tf.zeros((1, DRAWS, 1)))[0, :, 0]


WAYS: dict[str, Draw] = {
    "in turn": _in_turn,
    "tf.while_loop": _while_loop,
    "fori_loop": _fori_loop,
    "scan": _scan,
    "map_fn": _map,
    "a branch": _branch,
    "both branches": _both_branches,
    "after a loop": _after_a_loop,
    "loops in loops": _nested,
    "tf.function": _function,
    "a recurrent cell": _recurrent,
    "no seed": _without_a_seed,
}
MODES: dict[str, Any] = {
    "asynchronous": "asynchronous",
    "synchronous": "synchronous",
    "bounded": tfps.BoundedStaleness(2),
    "local": tfps.LocalSteps(3),
}


@pytest.mark.repeats
@pytest.mark.quick("loops in loops")
@pytest.mark.parametrize("way", WAYS)
def test_one_worker_draws_what_one_process_draws(
    strategy: tfps.ParameterServerStrategy, way: str
) -> None:
    met, state = met_in_fit(strategy, lambda: Noise(WAYS[way]))
    expected, expected_state = met_in_fit(None, lambda: Noise(WAYS[way]))
    np.testing.assert_array_equal(met, expected)
    np.testing.assert_array_equal(state, expected_state)


@pytest.mark.repeats
@pytest.mark.parametrize("mode", MODES)
def test_one_worker_goes_on_after_it_was_stopped(
    cluster: Callable[..., InProcessCluster], mode: str
) -> None:
    """A callback that looks at each step stops the worker after it."""
    resolver = cluster(workers=1, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=MODES[mode])
    steps: list[int] = []
    hook = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: steps.append(batch)
    )
    try:
        met, state = met_in_fit(strategy, lambda: Noise(_nested), callbacks=[hook])
    finally:
        strategy.close()
    expected, expected_state = met_in_fit(None, lambda: Noise(_nested))
    np.testing.assert_array_equal(met, expected)
    np.testing.assert_array_equal(state, expected_state)


@pytest.mark.repeats
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["in turn", "tf.while_loop", "loops in loops", "no seed"])
@pytest.mark.parametrize("workers", [2, 3])
def test_several_workers_draw_each_number_once(
    cluster: Callable[..., InProcessCluster], workers: int, way: str, mode: str
) -> None:
    resolver = cluster(workers=workers, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=MODES[mode])
    try:
        met, state = met_in_fit(strategy, lambda: Noise(WAYS[way]))
    finally:
        strategy.close()
    assert distinct(met.reshape(-1, 1)) == met.size
    if way != "no seed":  # its states are no counts
        np.testing.assert_array_equal(state, met_in_fit(None, lambda: Noise(WAYS[way]))[1])
