"""`Asynchronous(pipeline_steps=1)`: what cannot be pipelined.

The delay of exactly one: ../test_modes_ways_tables.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tfps.testing import InProcessCluster

BATCH, BATCHES = 8, 12
X = np.random.default_rng(1).random((BATCH * BATCHES, 4), np.float32)
Y = np.random.default_rng(2).random((BATCH * BATCHES, 3), np.float32)


pytestmark = pytest.mark.timeout(240)


class TwoOptimizers(keras.Sequential):
    """A step that reads the reply to its first push."""

    def train_step(self, data: Any) -> Any:
        super().train_step(data)
        return super().train_step(data)


@pytest.mark.rare
def test_what_cannot_be_pipelined_says_so(
    cluster: Callable[..., InProcessCluster], caplog: pytest.LogCaptureFixture
) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver, consistency=tfps.Asynchronous(pipeline_steps=1)
    )
    with strategy.scope():
        model = TwoOptimizers([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(X, Y, batch_size=BATCH, epochs=1, verbose=0)
    iterations = int(model.optimizer.iterations.numpy())
    strategy.close()
    assert "is not pipelined" in caplog.text
    assert iterations == 2 * BATCHES
