"""A lost parameter server ends training with the error that TensorFlow's users catch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.harness.command import Command
from tfps.launch import LocalCluster

SOME_UPDATES = 50
DEADLINE_S = 150

pytestmark = pytest.mark.timeout(240)


class KillServer(keras.callbacks.Callback):
    """Ends one server after some steps."""

    def __init__(self, cluster: LocalCluster, index: int) -> None:
        super().__init__()
        self.cluster, self.index = cluster, index

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == SOME_UPDATES:
            self.cluster.kill("ps", self.index)


@pytest.fixture
def tasks(cluster: Callable[..., LocalCluster]) -> Iterator[LocalCluster]:
    """A cluster whose lost servers come back after the test."""
    started = cluster(workers=1, ps=2)
    yield started
    for index in range(2):
        if started.status("ps", index) is not None:
            started.restart("ps", index)


@pytest.mark.quick("hands*")
@pytest.mark.parametrize("index", [0, 1], ids=["hands out tickets", "another"])
def test_fit_raises_unavailable(index: int, tasks: LocalCluster, carrier: str) -> None:
    strategy = tfps.ParameterServerStrategy(tasks.cluster_resolver, batch_callbacks="sampled")
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((40000, 4), "float32")
    with pytest.raises(tf.errors.UnavailableError):
        model.fit(
            x, x[:, 0], batch_size=2, epochs=5, verbose=0, callbacks=[KillServer(tasks, index)]
        )
    strategy.close()


CUSTOM_LOOP = """
import time
import keras, numpy as np, tensorflow as tf, tfps
cluster = tfps.LocalCluster(workers=1, ps=2)
strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, placement="round_robin")
coordinator = strategy.coordinator
with strategy.scope():
    weights = [keras.Variable(np.zeros([3], "float32"), name=name) for name in ("a", "b")]
    optimizer = keras.optimizers.SGD(-1.0)

@tf.function
def step():
    strategy.run(lambda: optimizer.apply([tf.ones([3])] * 2, weights))

def keep_busy():
    for _ in range(1000):
        coordinator.schedule(step)  # raises what an earlier step has raised
    coordinator.join()

for _ in range(100):
    coordinator.schedule(step)
while strategy.stats().updates_applied < 50:
    time.sleep(0.01)
cluster.kill("ps", 1)
for use in (keep_busy, lambda: strategy.pull(["b"])):
    try:
        use()
    except tf.errors.UnavailableError:
        print("unavailable", flush=True)
raise SystemExit(7)
"""


# Quicker ones: `fit`, above, and functions in tests/cluster/launch/test_local_cluster.py.
@pytest.mark.repeats
@pytest.mark.conformance
def test_join_raises_unavailable(tmp_path: Path, carrier: str) -> None:
    """And so does what the coordinator itself asks for.

    In a process of its own: TensorFlow may crash when one that has lost a server connects again.
    """
    script = tmp_path / "loop.py"
    script.write_text(CUSTOM_LOOP)
    with Command([sys.executable, str(script)], deadline_s=DEADLINE_S) as command:
        assert command.wait() == 7, command.describe()
        assert command.output.split().count("unavailable") == 2


SCRIPT = """
import threading
import keras, numpy as np, tfps
cluster = tfps.LocalCluster(workers=1, ps=1)
strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, batch_callbacks="sampled")
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.ones((40000, 4), "float32")
class Kill(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 50:
            print("killed", flush=True)
            cluster.kill("ps", 0)
model.fit(x, x[:, 0], batch_size=2, epochs=5, verbose=0, callbacks=[Kill()])
"""


@pytest.mark.repeats
def test_a_script_ends_with_a_failure(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with Command([sys.executable, str(script)], deadline_s=DEADLINE_S) as command:
        command.wait_for("killed")
        assert command.wait() == 1, command.describe()
        assert "UnavailableError" in command.errors
