"""`ClusterBoard` writes what each epoch did, and its failures end no training."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tfps.callbacks import ClusterBoard
from tfps.errors import ConfigError

Make = Callable[..., tfps.ParameterServerStrategy]
X = np.ones((32, 3), "float32")


def _model() -> keras.Model:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def _scalars(folder: Path) -> dict[str, list[float]]:
    """Return the numbers of all steps in the event files, by name."""
    found: dict[str, list[float]] = {}
    for path in sorted(folder.rglob("*tfevents*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append(float(tf.make_ndarray(value.tensor)))
    return found


def test_each_epoch_has_its_numbers(make_strategy: Make, tmp_path: Path) -> None:
    strategy = make_strategy()
    with strategy.scope():
        model = _model()
    board = ClusterBoard(tmp_path / "logs", in_logs=True)
    history = model.fit(X, X[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[board])
    stats = strategy.stats()
    scalars = _scalars(tmp_path)
    assert scalars["cluster/updates_applied"] == [8.0, 8.0]
    assert history.history["cluster/updates_applied"] == [8.0, 8.0]
    assert sum(scalars["cluster/bytes_pushed"]) == stats.bytes_pushed
    paces = {k: seconds for k, seconds in enumerate(stats.worker_step_seconds) if seconds}
    assert paces  # of a worker that took a batch
    for worker, seconds in paces.items():
        found = scalars[f"cluster/step_seconds_worker_{worker}"]
        assert found[-1] == pytest.approx(seconds)
    assert scalars["cluster/push_seconds"][-1] > 0
    assert {"cluster/staleness", "cluster/update_seconds", "cluster/wait_seconds"} <= set(scalars)
    assert set(history.history) == {"loss", *scalars}


@pytest.mark.rare
def test_a_folder_that_cannot_be_written_is_said_once(
    make_strategy: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    strategy = make_strategy()
    with strategy.scope():
        model = _model()
    board: Any = ClusterBoard(tmp_path / "file")
    with caplog.at_level(logging.WARNING, "tfps"):
        model.fit(X, X[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[board])
    (message,) = [text for text in caplog.messages if text.startswith("ClusterBoard: ")]
    assert "the numbers of some epochs are missing" in message
    assert strategy.stats().updates_applied == 16


def test_bad_uses_are_refused() -> None:
    with raises(ConfigError, "log_dir: received None without in_logs, expected a folder or in_l"):
        ClusterBoard()
    with raises(ConfigError, "ClusterBoard: received a model of another strategy or of none"):
        _model().fit(X, X[:, :1], verbose=0, callbacks=[ClusterBoard("logs")])
