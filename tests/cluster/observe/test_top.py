"""`tfps top --job` reads the servers of a job without a record."""

from __future__ import annotations

import json
from collections.abc import Callable

import keras
import numpy as np
import pytest
from click.testing import CliRunner

import tfps
from tfps.cli import main
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

X = np.ones((64, 3), "float32")


def test_the_counts_are_those_of_the_servers(
    cluster: Callable[..., LocalCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = cluster().cluster_resolver
    tasks = resolver.cluster_spec().as_dict()
    place = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": tasks, "task": place}))
    strategy = tfps.ParameterServerStrategy(resolver, job="watched")
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(X, X[:, :1], batch_size=4, verbose=0)
    result = CliRunner().invoke(main, ["top", "--job", "watched", "--once", "--json"])
    stats = strategy.stats()
    strategy.close()
    assert result.exit_code == 0, result.output
    view = json.loads(result.output.splitlines()[-1])
    counts = {each["task"]: each["count"] for each in view["tasks"]}
    assert counts["ps 0"] == stats.updates_applied == 16
    assert (counts["worker 0"], counts["worker 1"]) == stats.worker_steps
    unknown = CliRunner().invoke(main, ["top", "--job", "other", "--once"])
    assert unknown.exit_code == 1
    assert "the servers hold no job 'other'" in unknown.output
