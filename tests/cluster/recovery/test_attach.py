"""A reader attached to a job of a cluster reads while it trains, and does not disturb it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.checkpoint.counting_model import count_of, counting_model, updates_of
from tests.harness.command import Command
from tests.messages import raises
from tfps.errors import ConfigError, ConnectTimeout
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[3]
READER = """
import sys
import tfps
from tests.cluster.recovery.test_attach import read

with tfps.attach("night", sys.argv[1].split(",")) as job:
    for _ in range(20):
        print("read", read(job), flush=True)
    print("updates", job.stats().updates_applied, flush=True)
import tensorflow as tf
(device,) = tf.config.list_logical_devices()
assert device.name == "/device:CPU:0", "connected to a cluster"
"""


def read(job: tfps.Attachment) -> int:
    """Read the job, check that each value is a server's version, and return the lowest version."""
    values, versions = job.pull()
    numbers = {count_of([v]) for name, v in values.items() if "learning_rate" not in name}
    assert numbers <= {int(version) for version in versions}
    return int(min(versions))


class StopOnEvent(keras.callbacks.Callback):
    """A callback that ends `fit` once an event is set."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self._event = event

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._event.is_set():
            self.model.stop_training = True


def _fit(model: keras.Model, stops_training: threading.Event) -> None:
    data = np.zeros([40, 1])
    model.fit(
        data, data, batch_size=1, epochs=100_000, verbose=0, callbacks=[StopOnEvent(stops_training)]
    )


@pytest.fixture(scope="module")
def job(
    cluster: Callable[..., LocalCluster],
) -> Iterator[tuple[LocalCluster, tfps.ParameterServerStrategy, keras.Model]]:
    local = cluster(workers=2, ps=2)
    strategy = tfps.ParameterServerStrategy(
        local.cluster_resolver, job="night", placement="round_robin"
    )
    with strategy.scope():
        model = counting_model()
    yield local, strategy, model
    strategy.close()


def test_what_cannot_be_attached_to(
    job: tuple[LocalCluster, tfps.ParameterServerStrategy, keras.Model],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt gives one error, at once or within the given time."""
    local, _, _ = job
    servers = local.spec.jobs["ps"]
    with raises(ConfigError, "job", received="'day'"):
        tfps.attach("day", servers)
    with raises(ConfigError, "secret", remedy="ps 0"):
        tfps.attach("night", servers, secret="a guess")
    monkeypatch.setenv("TFPS_JOB_SECRET", "another guess")
    with raises(ConfigError, "secret"):
        tfps.attach("night", servers)
    monkeypatch.delenv("TFPS_JOB_SECRET")
    with raises(ConfigError, "'night'", received=1, remedy="2"):
        tfps.attach("night", servers[:1])
    with socket.create_server(("127.0.0.1", 0)) as other_server:
        address = f"127.0.0.1:{other_server.getsockname()[1]}"
        with raises(ConnectTimeout, address, remedy="TF_CONFIG"):
            tfps.attach("night", [servers[0], address], timeout_s=3)
    with raises(ConnectTimeout, "ps 1", received=address, remedy="refused"):
        tfps.attach("night", [servers[0], address])


def test_reading_from_a_process_of_its_own(
    job: tuple[LocalCluster, tfps.ParameterServerStrategy, keras.Model], tmp_path: Path
) -> None:
    """It has no model and knows only the addresses; a killed reader leaves no trace."""
    local, strategy, model = job
    script, stops_training = tmp_path / "reader.py", threading.Event()
    script.write_text(READER)
    command = [sys.executable, str(script), ",".join(local.spec.jobs["ps"])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    outputs = []

    def look() -> None:
        try:
            with Command(command, deadline_s=120, environment=environment) as first:
                first.wait_for("read ")
                first.process.kill()
            found = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=120, check=True
            )
            outputs.append(found.stdout)
        finally:
            stops_training.set()

    thread = threading.Thread(target=look)
    thread.start()
    _fit(model, stops_training)
    thread.join()
    (output,) = outputs
    versions = [int(line.split()[1]) for line in output.splitlines() if line.startswith("read ")]
    assert len(versions) == 20
    assert versions == sorted(versions)
    assert versions[-1] > versions[0]
    assert updates_of(model) == strategy.stats().updates_applied > versions[-1]
