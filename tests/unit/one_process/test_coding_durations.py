"""How long codecs take on both sides of a message, as `stats()` has it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.compression import Delta, PushPull, Quantize
from tfps.consistency.histogram import DURATION_BINS
from tfps.strategy.reading.stats import DECODE, ENCODE, Quantiles
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.rare

STEPS, BATCH, WORKERS = 8, 2, 2
EIGHT_BITS = Quantize(8)


def _counted(strategy: Any, kind: int) -> int:
    """How many durations of a kind all servers have counted."""
    layout = strategy.runtime.ticket_server.layout
    begin = layout.duration(kind, 0)
    return int(
        sum(cells[begin : begin + DURATION_BINS].sum() for cells in strategy.runtime.cells())
    )


def _fitted(cluster: InProcessCluster, **options: Any) -> tfps.ParameterServerStrategy:
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, **options)
    with strategy.scope():
        # A kernel for each of the two servers.
        layers = [keras.layers.Dense(16, use_bias=False) for _ in range(2)]
        model = keras.Sequential([keras.Input((16,)), *layers])
        model.compile("sgd", "mse")
    data = np.ones([STEPS * BATCH, 16], "float32")
    model.fit(data, data, batch_size=BATCH, verbose=0)
    return strategy


def test_without_codecs_nothing_is_timed(cluster: InProcessCluster) -> None:
    strategy = _fitted(cluster)
    stats = strategy.stats()
    assert stats.encode_seconds == stats.decode_seconds == Quantiles(None, None)
    strategy.close()


def test_gradients_are_encoded_on_workers_and_decoded_on_servers(cluster: InProcessCluster) -> None:
    strategy = _fitted(cluster, compression=EIGHT_BITS)
    stats = strategy.stats()
    # Each of a step's pushes says how long both took together.
    assert _counted(strategy, ENCODE) == _counted(strategy, DECODE) == 2 * STEPS
    for quantiles in (stats.encode_seconds, stats.decode_seconds):
        assert quantiles.p50 is not None
    strategy.close()


@pytest.mark.parametrize(
    ("mode", "pull"),
    [(tfps.Synchronous(), EIGHT_BITS), (tfps.LocalSteps(2), Delta(EIGHT_BITS))],
    ids=["synchronous", "local_steps"],
)
def test_parameters_are_encoded_on_servers_and_decoded_on_workers(
    cluster: InProcessCluster, mode: Any, pull: Any
) -> None:
    both = PushPull(push=EIGHT_BITS, pull=pull)
    strategy = _fitted(cluster, compression=both, consistency=mode)
    pushes = sum(strategy.stats().exchanges) - 2 * WORKERS  # but for the joins
    assert _counted(strategy, ENCODE) == 2 * pushes
    # A worker's last one is not reported.
    decoded = _counted(strategy, DECODE) - pushes
    assert pushes - 2 * WORKERS <= decoded < pushes
    strategy.close()


def test_pushes_of_functions_tell_of_the_reply_before(cluster: InProcessCluster) -> None:
    both = PushPull(push=EIGHT_BITS, pull=EIGHT_BITS)
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, compression=both)
    with strategy.scope():
        weights = [keras.Variable(np.ones([16], "float32"), name=f"w{n}") for n in range(2)]
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(weights)

    @tf.function
    def step() -> None:
        for _ in range(2):
            optimizer.apply([tf.convert_to_tensor(weight) for weight in weights], weights)

    coordinator = tfps.ClusterCoordinator(strategy)
    for _ in range(3):
        coordinator.schedule(step)
    coordinator.join()
    pushes = 3 * 2 * 2
    assert _counted(strategy, ENCODE) == 2 * pushes
    assert pushes < _counted(strategy, DECODE) < 2 * pushes
    strategy.close()
