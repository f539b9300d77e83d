"""Functions that the chief has collected: tasks free them, and none can keep the chief waiting."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.bridge.functions.function_registration import take_collected_functions
from tfps.bridge.tensorflow_private import current_context
from tfps.launch import LocalCluster

# If the chief stands still, no thread of it can end the wait: the test does so from outside.
RESCUED_AFTER_S = 60.0
PROBING = "tfps.recovery.probing"

pytestmark = [pytest.mark.rare, pytest.mark.timeout(180)]


@pytest.fixture
def strategy(tasks: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    """A chief that has trained, so that it probes its tasks."""
    strategy = tfps.ParameterServerStrategy(tasks(workers=1, ps=1).cluster_resolver)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(np.ones((4, 4), "float32"), np.ones(4), batch_size=2, verbose=0)
    yield strategy
    strategy.close()


def _collect() -> bytes:
    function = tf.function(lambda: tf.constant(1.0)).get_concrete_function()
    name: bytes = function.name
    del function
    gc.collect()
    return name


def test_tasks_free_them(strategy: tfps.ParameterServerStrategy) -> None:
    name, context = _collect(), current_context()
    worker = strategy.runtime.topology.workers[0]

    def is_known() -> bool:
        try:
            with tf.device(worker):
                context.call_function(name, [], 1)
        except tf.errors.NotFoundError:
            return False
        return True

    while is_known():
        time.sleep(0.1)
    assert context.has_function(name)
    strategy.close()


def test_one_that_stops_at_that_moment_is_lost(
    strategy: tfps.ParameterServerStrategy,
    tasks: Callable[..., LocalCluster],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = tasks(workers=1, ps=1)
    rescue: list[subprocess.Popen[bytes]] = []

    def stop_a_server() -> list[str]:
        """Stop a server after every task has replied to a probe, before requests to the tasks."""
        names = take_collected_functions()
        if names and not rescue:
            command = f"sleep {RESCUED_AFTER_S}; kill -CONT {cluster.pid('ps', 0)}"
            rescue.append(subprocess.Popen(["sh", "-c", command], start_new_session=True))
            cluster.suspend("ps", 0)
        return names

    monkeypatch.setattr(f"{PROBING}.collected_functions.take_collected_functions", stop_a_server)
    try:
        _collect()
        while strategy.tasks["ps 0"] != "lost":
            assert not rescue or rescue[0].poll() is None
            time.sleep(0.1)
        cluster.resume("ps", 0)
        while strategy.tasks["ps 0"] != "alive":
            time.sleep(0.1)
    finally:
        for process in rescue:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
