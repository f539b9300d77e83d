"""A task whose cores are all busy, for longer than a loss takes, still replies to probes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster
from tfps.recovery.probing.liveness import ProbePolicy

SIZE = 700
STREAMS = 4  # more than the machine of the smallest job has cores


@pytest.mark.rare
@pytest.mark.timeout(180)
def test_a_busy_server_is_alive(tasks: Callable[..., LocalCluster]) -> None:
    strategy = tfps.ParameterServerStrategy(tasks(workers=1, ps=1).cluster_resolver)
    coordinator = tfps.ClusterCoordinator(strategy)

    @tf.function
    def burn() -> tf.Tensor:
        with tf.device("/job:ps/replica:0/task:0/device:CPU:0"):
            matrices = [tf.random.normal([SIZE, SIZE]) for _ in range(STREAMS)]
            for _ in tf.range(10):
                matrices = [tf.tanh(matrix @ matrix) for matrix in matrices]
            return tf.add_n([tf.reduce_sum(matrix) for matrix in matrices])

    seen = set()
    ends_at = time.monotonic() + 1.5 * ProbePolicy.from_environment().max_detection_s
    while time.monotonic() < ends_at:
        coordinator.schedule(burn)
        while not coordinator.done():
            seen |= set(strategy.tasks.items())
            time.sleep(0.01)
    assert seen == {("worker 0", "alive"), ("ps 0", "alive")}
    assert any(thread.name == "tfps-probe" for thread in threading.enumerate())
    strategy.close()
    assert not any(thread.name == "tfps-probe" for thread in threading.enumerate())
