"""A task with other versions than the chief is refused by name, at the start or on its return."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
import tensorflow as tf

import tfps
from tests.cluster.launch.another_task import DEADLINE_S, another
from tests.messages import raises
from tfps.errors import ConfigError
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

# What is different in the task -> what the chief says of it.
CHANGES = {
    "tfps": ("tfps.__version__ = '0.0.1'", f"tfps 0.0.1 (here {tfps.__version__})."),
    "keras": (
        "versions = serving.task_versions\n"
        "serving.task_versions = lambda: {**versions(), 'keras': '3.14.0'}",
        "keras 3.14.0 (here 3.",
    ),
    "another handshake": (
        "versions = serving.task_versions\n"
        "serving.task_versions = lambda: {'packages': versions()}",
        "another tfps",
    ),
    "no handshake": ("serving.INTRODUCE_FUNCTION = 'unknown'", "an older tfps"),
}


@pytest.mark.rare
@pytest.mark.quick("worker-tfps")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["worker", "ps"])
def test_the_chief_refuses_it_by_name(kind: str, change: str, tmp_path: Path) -> None:
    code, said = CHANGES[change]
    with (
        LocalCluster(2, 2, log_dir=tmp_path) as cluster,
        another(cluster, kind, 1, code),
        raises(ConfigError, f"{kind} 1 at ", received=said, remedy="same minor versions"),
    ):
        tfps.ParameterServerStrategy(cluster.cluster_resolver)


@pytest.mark.repeats
@pytest.mark.parametrize("change", ["tfps", "no handshake"])
def test_a_worker_that_returns_with_it_is_left_out(
    change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="tfps")
    code, _ = CHANGES[change]
    with LocalCluster(2, 1, log_dir=tmp_path) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            count = tf.Variable(0)

        @tf.function
        def step() -> tf.Tensor:
            count.assign_add(1)
            return tf.constant(1)

        def run() -> None:
            for _ in range(4):
                coordinator.schedule(step)
            coordinator.join()

        run()
        with another(cluster, "worker", 1, code):
            ends_at = time.monotonic() + DEADLINE_S
            while "Training continues without it" not in caplog.text:
                assert time.monotonic() < ends_at
                run()
            for _ in range(5):
                run()
            assert caplog.text.count("Training continues without it") == 1
            assert strategy.tasks["worker 1"] != "alive"
        cluster.restart("worker", 1)
        ends_at = time.monotonic() + DEADLINE_S
        while strategy.tasks["worker 1"] != "alive":  # the right one is taken in
            assert time.monotonic() < ends_at
            run()
    [line] = [text for text in caplog.messages if "Training continues without it" in text]
    assert line.startswith("worker 1 at ")
