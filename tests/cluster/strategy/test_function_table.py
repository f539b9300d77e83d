"""Functions that are called for the first time side by side reach the task that they are for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.function_table import attach_attribute
from tfps.launch import LocalCluster

SMALL, LARGE = 4, 2000
# TensorFlow alone failed in one cluster of twenty here.
CLUSTERS, CALLS, ITEMS = 20, 24, 1 << 18


@pytest.mark.rare
@pytest.mark.timeout(300)
def test_first_calls_of_a_model_that_comes_late(cluster: Callable[..., LocalCluster]) -> None:
    """The room that is there at the begin ends between the first pushes of the fourth model.

    They are large, so the first of them is still being written when the others take their entries.
    """
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=3).cluster_resolver, transport="grpc", placement="round_robin"
    )
    for width in (SMALL, SMALL + 1, SMALL + 2, LARGE):
        with strategy.scope():
            layers = [keras.layers.Dense(width, use_bias=False) for _ in range(3)]
            model = keras.Sequential([keras.Input((width,)), *layers])
            model.compile("sgd", "mse")
        x = np.ones((16, width), "float32")
        model.fit(x, x, batch_size=8, verbose=0)
        assert int(model.optimizer.iterations.numpy()) == 2
    strategy.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_first_calls_of_a_worker_over_grpc(tmp_path: Path) -> None:
    """Whatever was called before on a worker is in its table, so each cluster is used once."""
    for _ in range(CLUSTERS):
        with LocalCluster(workers=2, ps=2, log_dir=tmp_path) as cluster:
            tfps.ParameterServerStrategy(cluster.cluster_resolver, transport="grpc")
            first = tf.function(lambda value: value[:1], autograph=False).get_concrete_function(
                tf.TensorSpec([ITEMS], tf.float32)
            )
            results = _call_side_by_side(first)
            assert len(set(results)) == 2  # one per worker


def _call_side_by_side(function: tf.types.experimental.ConcreteFunction) -> list[float]:
    @tf.function(autograph=False)
    def run() -> list[tf.Tensor]:
        function.add_to_graph(tf.compat.v1.get_default_graph())
        results = []
        for worker in range(2):
            with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
                value = tf.random.uniform([ITEMS])
                for number in range(CALLS):
                    (result,) = tf.raw_ops.RemoteCall(
                        target=f"/job:ps/replica:0/task:{number % 2}/device:CPU:0",
                        args=[value],
                        Tout=[tf.float32],
                        f=attach_attribute(function, "number", number),
                    )
                    private.run_independently(result.op)
                    results.append(result)
        return results

    return [float(result[0]) for result in run()]
