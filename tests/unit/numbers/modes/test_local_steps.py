"""Workers that train by themselves: with one worker, the numbers of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, mean_output
from tests.unit.numbers.modes.small_network import BATCH, examples, network
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)


LOCAL = "CPU:0"
PERIOD = 4


def _scaled() -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=8.0)


def _decaying() -> Any:
    schedule = keras.optimizers.schedules.CosineDecay(0.02, 60)
    return keras.optimizers.AdamW(schedule, weight_decay=0.01, global_clipnorm=0.5)


ONE_PROCESS: dict[str, tuple[Callable[[], Any], Callable[[], list[Any]], int]] = {
    # 83 examples are 11 batches, the last one of 3: periods of 4, 4 and 3 steps.
    "schedule, decay, clipping": (_decaying, list, 83),
    "loss scale, state, seeds": (
        _scaled,
        lambda: [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3, seed=2)],
        80,
    ),
    "accumulation": (
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=3),
        list,
        83,
    ),
}


@pytest.fixture(scope="module")
def alone(cluster: Callable[..., InProcessCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    """One worker."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.LocalSteps(PERIOD),
    )
    yield strategy
    strategy.close()


@pytest.mark.slow
@pytest.mark.parametrize("case", ONE_PROCESS)
def test_one_worker_is_one_process(alone: tfps.ParameterServerStrategy, case: str) -> None:
    optimizer, layers, count = ONE_PROCESS[case]
    x, y = examples(count)
    with alone.scope():
        model = network(optimizer(), *layers())
    before = model.get_weights()
    # Slots stay on the worker from epoch to epoch, and a hook in lock-step begins each step anew.
    steps = []
    hook = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: steps.append(batch)
    )
    history = model.fit(x, y, batch_size=BATCH, epochs=3, callbacks=[hook], verbose=0)
    with tf.device(LOCAL):
        reference = network(optimizer(), *layers())
        reference.set_weights(before)
        expected = reference.fit(x, y, batch_size=BATCH, epochs=3, verbose=0)
    for weight, other in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=2e-6)
    for name, values in expected.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-5)
    assert steps == 3 * list(range(-(-count // BATCH)))
    assert int(model.optimizer.iterations) == int(reference.optimizer.iterations)


@pytest.mark.repeats
@pytest.mark.parametrize("way", ["generator", "function"])
def test_any_input(alone: tfps.ParameterServerStrategy, way: str) -> None:
    """The input has an unknown length, which is no multiple of the period."""
    x, y = examples(9 * BATCH)
    batches = [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    with alone.scope():
        model = network("adam")
    before, counted = model.get_weights(), alone.stats().updates_applied
    function = {"function": lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)}
    model.fit(function.get(way, (batch for batch in batches)), verbose=0)
    with tf.device(LOCAL):
        reference = network("adam")
        reference.set_weights(before)
        reference.fit((batch for batch in batches), verbose=0)
    for weight, other in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=2e-6)
    assert alone.stats().updates_applied - counted == 3


@pytest.mark.repeats
def test_elastic_averaging(cluster: Callable[..., InProcessCluster]) -> None:
    """Weights that grow by one with each step of the worker: x and the center, by hand."""
    periods, elasticity = 5, 0.25
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        consistency=tfps.LocalSteps(PERIOD, elasticity=elasticity),
    )
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), UnitGradients()])
        model.compile(keras.optimizers.SGD(-1.0), mean_output)
    steps = periods * PERIOD
    model.fit(np.ones([steps, 4]), np.ones([steps, 2]), batch_size=1, verbose=0)
    mine = center = 0.0
    for _ in range(periods):
        mine += PERIOD
        mine, center = mine - elasticity * (mine - center), center + elasticity * (mine - center)
    np.testing.assert_allclose(model.get_weights(), center, rtol=1e-6)
    strategy.close()
