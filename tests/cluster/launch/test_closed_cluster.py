"""Objects on a cluster end with it, and say so: no false alarm, no hang, no gRPC error."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.launch.small_fit import small_fit
from tests.messages import raises
from tfps.errors import ClusterError, StrategyClosed
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(180)

X = np.ones((8, 4), "float32")
Y = X.sum(axis=1)


class LeftCluster(NamedTuple):
    """A cluster whose block was left, and the objects that were made on it."""

    cluster: LocalCluster
    strategy: tfps.ParameterServerStrategy
    coordinator: tfps.ClusterCoordinator
    model: keras.Model
    other: tfps.ParameterServerStrategy


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> LeftCluster:
    folder = tmp_path_factory.mktemp("left")
    with pytest.MonkeyPatch.context() as patch:
        # A guard that goes on would find its tasks lost within a second.
        patch.setenv("TFPS_PROBE_PERIOD_S", "0.1")
        with LocalCluster(1, 1, log_dir=folder) as cluster:
            other = tfps.ParameterServerStrategy(cluster.spec.tf_resolver())
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
            model = small_fit(strategy)
            coordinator = strategy.coordinator
    return LeftCluster(cluster, strategy, coordinator, model, other)


def _constant() -> tf.Tensor:
    return tf.constant(1)


def _layer(left: LeftCluster) -> None:
    with left.strategy.scope():
        keras.layers.Dense(1).build((None, 4))


USES: dict[str, Callable[[LeftCluster], Any]] = {
    "fit": lambda left: left.model.fit(X, Y, verbose=0),
    "evaluate": lambda left: left.model.evaluate(X, Y, verbose=0),
    "predict": lambda left: left.model.predict(X, verbose=0),
    "train_on_batch": lambda left: left.model.train_on_batch(X, Y),
    "predict_on_batch": lambda left: left.model.predict_on_batch(X),
    "get_weights": lambda left: left.model.get_weights(),
    "set_weights": lambda left: left.model.set_weights([np.zeros((4, 1)), np.zeros(1)]),
    "scope": _layer,
    "pull": lambda left: left.strategy.pull(),
    "push": lambda left: left.strategy.push({}, np.zeros(1)),
    "pull_rows": lambda left: left.strategy.pull_rows("table", [0]),
    "stats": lambda left: left.strategy.stats(),
    "schedule": lambda left: left.coordinator.schedule(tf.function(_constant)),
    "dataset": lambda left: left.coordinator.create_per_worker_dataset(
        lambda: tf.data.Dataset.range(1)
    ),
    "other": lambda left: left.other.pull(),
    "line": lambda left: left.strategy.runtime.ticket_server.cells(),
}


@pytest.mark.slow
@pytest.mark.parametrize("use", USES)
def test_a_closed_strategy_says_so(left: LeftCluster, use: str) -> None:
    with raises(RuntimeError, "LocalCluster", received="closed", remedy="inside the `with`"):
        USES[use](left)


@pytest.mark.repeats
@pytest.mark.parametrize("name", ["model.keras", "model.weights.h5"])
def test_saving_too_late_spares_the_file(left: LeftCluster, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("an earlier one")
    save = left.model.save_weights if "weights" in name else left.model.save
    with pytest.raises(StrategyClosed):
        save(path)
    assert path.read_text() == "an earlier one"


@pytest.mark.repeats
def test_no_strategy_on_a_closed_cluster(left: LeftCluster) -> None:
    with raises(ClusterError, "LocalCluster is closed", remedy="start another cluster"):
        tfps.ParameterServerStrategy(left.cluster.cluster_resolver)


@pytest.mark.repeats
def test_nothing_asks_the_tasks_at_exit(left: LeftCluster) -> None:
    # Each session that is left open waits for three seconds for its task when it is collected.
    targets = {f"grpc://{address}" for _, _, address in left.cluster.spec.tasks("worker", "ps")}
    sessions = [
        each
        for each in gc.get_objects()
        if isinstance(each, tf.compat.v1.Session) and tf.compat.as_str(each.sess_str) in targets
    ]
    assert {tf.compat.as_str(session.sess_str) for session in sessions} == targets
    assert all(session._closed for session in sessions)  # an attribute of TensorFlow's


@pytest.mark.rare
def test_the_next_cluster_hears_nothing_of_it(
    left: LeftCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert [thread.name for thread in threading.enumerate() if thread.name == "tfps-probe"] == []
    with LocalCluster(1, 1, log_dir=tmp_path) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        model = small_fit(strategy)
        strategy.close()  # leaving the block still ends what TensorFlow has on the tasks
        with raises(StrategyClosed, "strategy.close()"):
            model.predict(X, verbose=0)
    with LocalCluster(1, 1, log_dir=tmp_path) as cluster:
        small_fit(tfps.ParameterServerStrategy(cluster.cluster_resolver))
    alarms = [record for record in caplog.records if record.name.startswith("tfps.recovery")]
    assert [each for each in alarms if each.levelno >= logging.WARNING] == []
    errors = capfd.readouterr().err
    assert "remote context" not in errors
    assert "failed to connect" not in errors
    assert "Failed to" not in errors


@pytest.mark.repeats
def test_what_runs_when_the_block_is_left_is_cancelled(tmp_path: Path) -> None:
    @tf.function
    def long() -> tf.Tensor:
        count = tf.constant(0)
        while count < 2_000_000_000:
            count += 1
        return count

    with LocalCluster(1, 1, log_dir=tmp_path) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        coordinator = tfps.ClusterCoordinator(strategy)
        coordinator.schedule(long)
    with raises(StrategyClosed, "LocalCluster", received="closed"):
        coordinator.join()


@pytest.mark.rare
@pytest.mark.parametrize("how", ["worker killed", "ps killed", "ps stopped", "worker stopped"])
def test_tasks_that_do_not_answer_keep_nobody(tmp_path: Path, how: str) -> None:
    task, fault = how.split()
    with LocalCluster(1, 1, log_dir=tmp_path) as cluster:
        model = small_fit(tfps.ParameterServerStrategy(cluster.cluster_resolver))
        (cluster.kill if fault == "killed" else cluster.suspend)(task, 0)
    with pytest.raises(StrategyClosed):
        model.predict(X, verbose=0)
    with LocalCluster(1, 1, log_dir=tmp_path) as cluster:
        small_fit(tfps.ParameterServerStrategy(cluster.cluster_resolver))
