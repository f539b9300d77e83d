"""The first steps of a training, which workers take by themselves."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.modes.small_network import BATCH, network
from tests.unit.numbers.modes.two_workers import WORKERS
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


def _counting(path: str, number: tf.Tensor) -> tf.Tensor:
    """Runs on a worker: a line for each batch that it draws."""
    with Path(path).open("a") as lines:
        lines.write(f"{int(number)}\n")
    time.sleep(0.02)
    return number


def _drawn(folder: Path) -> list[int]:
    paths = [folder / f"worker-{slot}" for slot in range(WORKERS)]
    return [len(path.read_text().splitlines()) if path.exists() else 0 for path in paths]


def test_no_server_is_needed(
    cluster: Callable[..., LocalCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server does nothing for ten seconds; before it is there again, all have trained.

    It can begin as late as that once the weights are made: TensorFlow connects to every task of a
    cluster before it makes a variable.
    """
    monkeypatch.setenv("TFPS_PROBE_MISSES", "8")  # or it is given up
    steps, folder = 120, str(tmp_path)

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        path = f"{folder}/worker-{context.input_pipeline_id}"
        count = functools.partial(_counting, path)
        numbers = tf.data.Dataset.range(2 * steps).map(
            lambda number: tf.ensure_shape(tf.py_function(count, [number], tf.int64), [])
        )
        batch = tf.ones([BATCH, 6]), tf.zeros([BATCH], tf.int64)
        return numbers.map(lambda number: batch).prefetch(0)

    job = cluster(workers=WORKERS, ps=2)
    strategy = tfps.ParameterServerStrategy(
        job.cluster_resolver,
        placement="round_robin",
        consistency=tfps.Asynchronous(warm_up_steps=steps),
    )
    with strategy.scope():
        model = network("sgd")
    drawn_meanwhile: list[int] = []

    def stop_a_server() -> None:
        while min(_drawn(tmp_path)) < 2:  # both have the weights, and train
            time.sleep(0.01)
        job.suspend("ps", 1)
        try:
            time.sleep(10)
            drawn_meanwhile.extend(_drawn(tmp_path))
        finally:
            job.resume("ps", 1)

    thread = threading.Thread(target=stop_a_server)
    thread.start()
    model.fit(dataset, verbose=0)
    thread.join()
    stats = strategy.stats()
    strategy.close()
    assert min(drawn_meanwhile) >= steps
    assert stats.worker_steps == (2 * steps, 2 * steps)
