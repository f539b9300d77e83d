"""A strategy's record has its statistics, and ends with the strategy."""

from __future__ import annotations

import dataclasses
import gc
import json
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.observe.record import RECORD_FILE
from tfps.testing import InProcessCluster

Make = Callable[..., tfps.ParameterServerStrategy]
X = np.ones((32, 3), "float32")


def test_the_last_line_has_the_statistics_at_the_end(
    make_strategy: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFPS_RECORD", str(tmp_path / "runs"))
    strategy = make_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    history = model.fit(X, X[:, :1], batch_size=4, verbose=0)
    at_rest = json.loads(json.dumps(dataclasses.asdict(strategy.stats())))
    strategy.close()
    last = json.loads((tmp_path / "runs" / RECORD_FILE).read_text().splitlines()[-1])
    assert last["stats"]["updates_applied"] == 8
    # Each reading of a ledger is an exchange with its server.
    assert last["stats"] | {"traffic": None} == at_rest | {"traffic": None}
    assert last["usage"]["chief 0"]["memory_bytes"] > 0
    assert last["loss"] == pytest.approx(history.history["loss"][-1])
    assert last["traces"] == {f"the train step of {model.name}": 1}
    assert last["largest"][0] == f"{model.name}/{model.layers[0].name}/kernel"
    assert last["run"] is None


def test_a_loss_that_is_not_finite_names_the_variable(
    make_strategy: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TFPS_RECORD", str(tmp_path))
    strategy = make_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name="out")], name="m")
        model.compile(keras.optimizers.SGD(1e30), "mse")
    model.fit(X, X[:, :1], batch_size=4, verbose=0)
    strategy.close()
    (message,) = [text for text in caplog.messages if text.endswith("(loss)")]
    assert ", and m/out/kernel is not finite; staleness " in message
    assert ", learning rate 1e+30: use a lower learning rate" in message
    last = json.loads((tmp_path / RECORD_FILE).read_text().splitlines()[-1])
    assert last["not_finite"] == "m/out/kernel"
    assert last["loss"] in ("nan", "inf")


def test_a_record_keeps_no_strategy(
    cluster: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFPS_RECORD", str(tmp_path))
    runtime = tfps.ParameterServerStrategy(cluster.cluster_resolver).runtime
    gc.collect()
    assert runtime.closed


def test_traces_of_scheduled_functions_are_counted(make_strategy: Make) -> None:
    strategy = make_strategy()
    coordinator = tfps.ClusterCoordinator(strategy)

    @tf.function
    def step(number: int) -> tf.Tensor:
        return tf.constant(number)

    for number in (1, 2, 2, 3):
        coordinator.schedule(step, args=(number,))
    coordinator.join()
    assert strategy.runtime.traces == {"step": 3}
