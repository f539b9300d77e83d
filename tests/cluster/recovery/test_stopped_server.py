"""A parameter server hangs (SIGSTOP): calls that wait raise `UnavailableError` with its name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.recovery.conftest import PROBES
from tests.harness.command import Command
from tests.messages import raises
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

X = np.ones((40000, 4), "float32")


class StopServer(keras.callbacks.Callback):
    """Stops a server after some steps."""

    def __init__(self, cluster: LocalCluster, index: int) -> None:
        super().__init__()
        self.cluster, self.index = cluster, index

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 50:
            self.cluster.suspend("ps", self.index)


def _strategy(cluster: LocalCluster) -> tfps.ParameterServerStrategy:
    return tfps.ParameterServerStrategy(cluster.cluster_resolver, batch_callbacks="sampled")


def _model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("index", [0, 1], ids=["hands out tickets", "another"])
def test_fit_raises_and_the_next_strategy_trains(
    index: int, tasks: Callable[..., LocalCluster]
) -> None:
    cluster = tasks(workers=1, ps=2)
    strategy = _strategy(cluster)
    model = _model(strategy)
    lost = f"/job:ps/replica:0/task:{index} at {cluster.spec.address('ps', index)}"
    with raises(tf.errors.UnavailableError, lost):
        model.fit(
            X, X[:, 0], batch_size=2, epochs=5, verbose=0, callbacks=[StopServer(cluster, index)]
        )
    assert strategy.tasks == {
        "worker 0": "alive",
        f"ps {index}": "lost",
        f"ps {1 - index}": "alive",
    }
    strategy.close()  # does not wait for the server either
    cluster.resume("ps", index)
    fresh = _strategy(cluster)
    history = _model(fresh).fit(X[:400], X[:400, 0], batch_size=2, epochs=2, verbose=0)
    losses = history.history["loss"]
    assert losses[1] < losses[0]
    assert fresh.stats().updates_applied == 400
    fresh.close()


def test_evaluate_raises(tasks: Callable[..., LocalCluster]) -> None:
    cluster = tasks(workers=1, ps=2)
    strategy = _strategy(cluster)
    model = _model(strategy)

    class Stop(keras.callbacks.Callback):
        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 50:
                cluster.suspend("ps", 0)

    with raises(tf.errors.UnavailableError, "task:0 at"):
        model.evaluate(X, X[:, 0], batch_size=2, verbose=0, callbacks=[Stop()])
    strategy.close()


def test_a_custom_loop_raises(tasks: Callable[..., LocalCluster]) -> None:
    cluster = tasks(workers=1, ps=2)
    strategy = _strategy(cluster)
    coordinator = tfps.ClusterCoordinator(strategy)
    model = _model(strategy)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(X[:2]) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    coordinator.schedule(step)
    coordinator.join()
    cluster.suspend("ps", 1)
    for _ in range(3):
        coordinator.schedule(step)
    with raises(tf.errors.UnavailableError, "task:1 at"):
        coordinator.join()
    with raises(tf.errors.UnavailableError, "task:1 at"):
        coordinator.schedule(step)
    strategy.close()


CHIEF = """
import os, signal
import keras, numpy as np, tfps

class Stop(keras.callbacks.Callback):
    def __init__(self, process):
        super().__init__()
        self.process = int(process)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 50:
            os.killpg(self.process, signal.SIGSTOP)

strategy = tfps.ParameterServerStrategy(batch_callbacks="sampled")
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.ones((4000, 4), "float32")
model.fit(x, x[:, 0], batch_size=2, verbose=0, callbacks=[Stop(os.environ["STOPPED"])])
print("trained", int(model.optimizer.iterations.numpy()), strategy.tasks["worker 1"], flush=True)
"""


@pytest.mark.tfps_cluster(workers=2, ps=1)
@pytest.mark.parametrize(("stopped", "status"), [(("ps", 0), 1), (("worker", 1), 0)])
def test_a_script_ends_while_a_task_is_stopped(
    stopped: tuple[str, int], status: int, tmp_path: Path, tfps_cluster: LocalCluster
) -> None:
    """Neither its exception nor the end of the interpreter waits for the task."""
    script = tmp_path / "chief.py"
    script.write_text(CHIEF)
    environment = {
        **PROBES,
        "TF_CONFIG": json.dumps(tfps_cluster.spec.tf_config("chief", 0)),
        "TF_GRPC_REUSE_PORT": "true",
        "STOPPED": str(tfps_cluster.pid(*stopped)),
    }
    arguments = [sys.executable, str(script)]
    with Command(arguments, deadline_s=120, environment=environment) as chief:
        assert chief.wait() == status, chief.describe()
        if status:
            assert "UnavailableError" in chief.errors
            assert "The parameter server /job:ps/replica:0/task:0 at" in chief.errors
        else:
            assert "trained 2000 lost" in chief.output
