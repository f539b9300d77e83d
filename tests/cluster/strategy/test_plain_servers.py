"""Tasks that a user started as plain `tf.distribute.Server` take part like our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, Visits, mean_output, numbered
from tests.cluster.processes import cluster_of_processes, resolver_of
from tests.messages import check_message, raises
from tfps.errors import UnsupportedError
from tfps.optimizers import server_update
from tfps.optimizers.server_update import MIN_COMPILED_ITEMS

LOCAL = "/job:chief/replica:0/task:0/device:CPU:0"
EXAMPLES = 200

pytestmark = [pytest.mark.rare, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _no_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFPS_TRANSPORT", raising=False)  # "auto" is what is tested


def _fit(make: Callable[[], keras.Model]) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = make()
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    keras.utils.set_random_seed(2)  # of the order of the examples
    model.fit(x, x.sum(axis=1), batch_size=8, epochs=3, verbose=0)
    return model


def _regression() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def test_fit_on_plain_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pushes run operation by operation, as those of small models do, and as one kernel."""
    tasks = [("worker", 0), ("ps", 0)]
    with cluster_of_processes(tmp_path, tasks, plain=set(tasks)) as jobs:
        strategy = tfps.ParameterServerStrategy(resolver_of(jobs))
        assert strategy.stats().transports == ("grpc",)

        def make() -> keras.Model:
            with strategy.scope():
                return _regression()

        with tf.device(LOCAL):
            local = _fit(_regression)
        for compiled_items, conditions in ((MIN_COMPILED_ITEMS, 1), (0, 0)):
            monkeypatch.setattr(server_update, "MIN_COMPILED_ITEMS", compiled_items)
            model = _fit(make)
            for weight, reference in zip(model.get_weights(), local.get_weights(), strict=True):
                np.testing.assert_allclose(weight, reference, atol=1e-6)
            assert int(model.optimizer.iterations.numpy()) == 24
            assert conditions in [
                sum(operation.type == "If" for operation in function.graph.get_operations())
                for function in strategy.runtime.push_functions
            ]
        strategy.close()


def test_each_task_falls_back_by_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tasks = [("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)]
    with cluster_of_processes(tmp_path, tasks, plain={("worker", 1), ("ps", 1)}) as jobs:
        with raises(
            UnsupportedError, "transport: ", received="worker 1, ps 1", remedy='transport="auto"'
        ):
            tfps.ParameterServerStrategy(resolver_of(jobs), transport="direct")
        strategy = tfps.ParameterServerStrategy(resolver_of(jobs), placement="round_robin")
        with strategy.scope():
            visits = Visits(EXAMPLES)
            model = keras.Sequential([keras.Input((4,)), UnitGradients()])
            model.compile(keras.optimizers.SGD(-1.0), mean_output, metrics=[visits])
        x, labels = numbered(EXAMPLES)
        for _ in range(2):
            model.fit(x, labels, batch_size=2, epochs=1, verbose=0)
            assert visits.counts() == [1] * EXAMPLES
        assert model.get_weights() == [EXAMPLES, EXAMPLES]
        stats = strategy.stats()
        assert stats.transports == ("direct", "grpc")
        assert stats.versions == (EXAMPLES, EXAMPLES)
        assert all(steps > 0 for steps in stats.worker_steps)
        names = [weight.path for weight in model.weights]
        assert strategy.pull(names)[0] == dict.fromkeys(names, EXAMPLES)
        said = [record for record in caplog.messages if "plain tf.distribute.Server" in record]
        assert len(said) == 1
        check_message(said[0], "worker 1, ps 1: ", remedy="tfps run")
        strategy.close()
