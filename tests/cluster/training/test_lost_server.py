"""A lost parameter server ends `fit` with the error that TensorFlow's users catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster


class KillServer(keras.callbacks.Callback):
    """Ends one server after some steps."""

    def __init__(self, cluster: LocalCluster, index: int) -> None:
        super().__init__()
        self.cluster, self.index = cluster, index

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 50:
            self.cluster.kill("ps", self.index)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("index", [0, 1], ids=["hands out tickets", "another"])
def test_fit_raises_unavailable(index: int, cluster: Callable[..., LocalCluster]) -> None:
    tasks = cluster(workers=1, ps=2)
    strategy = tfps.ParameterServerStrategy(tasks.cluster_resolver, batch_callbacks="sampled")
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    x = np.ones((40000, 4), "float32")
    with pytest.raises(tf.errors.UnavailableError):
        model.fit(
            x, x[:, 0], batch_size=2, epochs=5, verbose=0, callbacks=[KillServer(tasks, index)]
        )
    tasks.restart("ps", index)
    strategy.close()
