"""Each worker's own pace, where all take as many steps per second as the slowest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps

Make = Callable[..., tfps.ParameterServerStrategy]
STEPS, SLOW_S = 10, 0.1


def _dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return batches that worker 1 waits for."""

    def pause(number: tf.Tensor) -> tf.Tensor:
        time.sleep(SLOW_S if context.input_pipeline_id == 1 else 0.0)
        return number

    def batch(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        called = tf.py_function(pause, [number], tf.int64)
        with tf.control_dependencies([called]):
            return tf.ones([4, 3]), tf.ones([4, 1])

    return tf.data.Dataset.range(STEPS).map(batch).prefetch(0)


def _fit(strategy: tfps.ParameterServerStrategy) -> Any:
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
    model.fit(_dataset, epochs=1, verbose=2)
    return strategy.stats()


@pytest.mark.quick("BoundedStaleness")
@pytest.mark.parametrize(
    "mode",
    [
        tfps.Synchronous(),
        tfps.BoundedStaleness(1),
        tfps.LocalSteps(period_steps=2, synchronous_periods=True),
    ],
    ids=lambda mode: type(mode).__name__,
)
def test_a_slow_worker_is_told_from_those_that_wait_for_it(
    make_strategy: Make, capfd: pytest.CaptureFixture[str], mode: Any
) -> None:
    stats = _fit(make_strategy(mode))
    fast, slow = stats.worker_step_seconds
    assert slow > 0.7 * SLOW_S
    assert fast < slow / 2
    last = [line for line in capfd.readouterr().out.splitlines() if "2/2 workers" in line][-1]
    assert " - worker 1 is slow, " in last


def test_each_server_has_rates_and_mean_times(make_strategy: Make) -> None:
    strategy = make_strategy(tfps.Synchronous())
    stats = _fit(strategy)
    for _ in range(3):  # a busy server has no rate: it is asked without patience
        if any(server.updates_per_s is None for server in stats.servers):
            stats = _fit(strategy)
    for server in stats.servers:
        assert server.push_seconds.mean > SLOW_S / 4  # of two workers, one waits for the other
        assert server.wait_seconds.mean > SLOW_S / 4
        assert server.update_seconds.count == server.updates_applied
        assert 0 < server.updates_per_s < 2 / SLOW_S
        assert server.bytes_per_s > 0
