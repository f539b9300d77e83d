"""Faults of real jobs give their warning, and a job without any gives none."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster
from tfps.observe import cluster_warning, recorder
from tfps.observe.cluster_warning import find_warnings
from tfps.observe.record import RECORD_FILE, parse_line

pytestmark = pytest.mark.timeout(240)

STEP_S = 0.02


@pytest.fixture
def record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Path]:
    """The record of the test's strategy, whose faults need to last for seconds only."""
    monkeypatch.setenv(recorder.RECORD, str(tmp_path))
    monkeypatch.setattr(recorder, "PERIOD_S", 0.2)
    monkeypatch.setattr(cluster_warning, "LASTING_S", 3.0)
    monkeypatch.setattr(cluster_warning, "LEAST_SPAN_S", 2.0)
    monkeypatch.setattr(cluster_warning, "STALL_S", 2.0)
    with caplog.at_level(logging.WARNING, "tfps.observe"):
        yield tmp_path / RECORD_FILE


def _batches(
    steps: int, *, seconds: Callable[[int], float]
) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    """Return a function that makes a worker's batches, each of which takes some seconds."""

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        worker = context.input_pipeline_id

        def pause(number: tf.Tensor) -> tf.Tensor:
            time.sleep(seconds(worker))
            return number

        def batch(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.control_dependencies([tf.py_function(pause, [number], tf.int64)]):
                return tf.ones([4, 1]), tf.zeros([4, 1])

        return tf.data.Dataset.range(steps).map(batch).prefetch(0)

    return dataset


def _fit(strategy: tfps.ParameterServerStrategy, data: Any, *, rate: float, **options: Any) -> None:
    with strategy.scope():
        out = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="out")
        model = keras.Sequential([keras.Input((1,)), out], name="line")
        model.compile(keras.optimizers.SGD(rate), "mse")
    model.fit(data, epochs=1, verbose=0, **options)
    strategy.close()


def _warnings(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """Return the warnings of the record, by their kinds."""
    texts = [r.getMessage() for r in caplog.records if r.name == recorder.__name__]
    return {kind.rstrip(")"): text for text, _, kind in (text.rpartition(" (") for text in texts)}


@pytest.mark.slow
def test_a_slow_worker(
    cluster: Callable[..., LocalCluster], record: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster().cluster_resolver, consistency=tfps.Synchronous()
    )
    _fit(strategy, _batches(60, seconds=lambda worker: 0.15 * worker), rate=0.01)
    assert "input-bound" in _warnings(caplog)  # which makes it slow
    message = _warnings(caplog)["straggler"]
    assert message.startswith("worker 1 is slow, ")
    assert "Synchronous(backup_workers=1)" in message


@pytest.mark.repeats
def test_a_loss_that_is_not_finite(
    cluster: Callable[..., LocalCluster], record: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = tfps.ParameterServerStrategy(cluster().cluster_resolver)
    _fit(strategy, _batches(100, seconds=lambda _: STEP_S), rate=1e6)
    message = _warnings(caplog)["loss"]
    assert "line/out/kernel is not finite" in message
    assert "learning rate 1e+06" in message


@pytest.mark.slow
def test_an_asynchronous_run_that_diverges(
    cluster: Callable[..., LocalCluster], record: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = tfps.ParameterServerStrategy(cluster().cluster_resolver)
    # Uphill: so the loss grows whatever the staleness of gradients is.
    _fit(strategy, _batches(300, seconds=lambda _: STEP_S), rate=-0.01)
    message = _warnings(caplog)["loss"]
    assert message.startswith("the loss has grown from ")
    assert "staleness" in message
    assert "learning rate -0.01" in message
    assert "finite" not in message


class _Suspend(keras.callbacks.Callback):
    """Stops worker 1 once."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__()
        self._cluster, self._is_done = cluster, False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch > 25 and not self._is_done:  # no longer in lock-step
            self._is_done = True
            self._cluster.suspend("worker", 1)


@pytest.mark.slow
def test_a_stalled_round(
    cluster: Callable[..., LocalCluster], record: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = cluster()
    strategy = tfps.ParameterServerStrategy(tasks.cluster_resolver, consistency=tfps.Synchronous())
    try:
        _fit(
            strategy, _batches(60, seconds=lambda _: STEP_S), rate=0.01, callbacks=[_Suspend(tasks)]
        )
    finally:
        tasks.resume("worker", 1)
    message = _warnings(caplog)["stall"]
    assert ": worker 0 waits for worker 1; look whether it hangs" in message


@pytest.mark.repeats
@pytest.mark.parametrize("mode", [tfps.Asynchronous(), tfps.Synchronous()], ids=repr)
def test_a_job_that_trains_well(
    cluster: Callable[..., LocalCluster],
    record: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    mode: Any,
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv(recorder.RECORD, str(record.parent))
    strategy = tfps.ParameterServerStrategy(cluster().cluster_resolver, consistency=mode)
    _fit(strategy, _batches(100, seconds=lambda _: 0.0), rate=0.01)
    assert _warnings(caplog) == {}
    lines = [parse_line(text) for text in record.read_text().splitlines()]
    assert find_warnings([line for line in lines if line is not None]) == []
    assert json.loads(record.read_text().splitlines()[-1])["loss"] < 1.0
