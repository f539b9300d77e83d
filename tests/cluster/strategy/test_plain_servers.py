"""Tasks that a user started as plain `tf.distribute.Server` take part like our own."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.cluster import accepts_connections, lease_ports
from tfps.testing import Command

SERVER = """
import json, os
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
options = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=8)
tf.distribute.Server(
    config["cluster"], job_name=config["task"]["type"], task_index=config["task"]["index"],
    config=options,
).join()
"""


@pytest.fixture
def plain_cluster(tmp_path: Path) -> Iterator[dict[str, list[str]]]:
    """One worker and one parameter server that know nothing of tfps."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    lease = lease_ports(3)
    chief, worker, ps = (f"127.0.0.1:{port}" for port in lease.ports)
    jobs = {"chief": [chief], "worker": [worker], "ps": [ps]}
    commands = []
    lease.close()
    for task_type in ("worker", "ps"):
        config = {"cluster": jobs, "task": {"type": task_type, "index": 0}}
        environment = {"TF_CONFIG": json.dumps(config)}
        commands.append(
            Command([sys.executable, str(script)], deadline_s=150, environment=environment)
        )
    with commands[0], commands[1]:
        deadline = time.monotonic() + 90
        while not all(accepts_connections(address) for address in (worker, ps)):
            assert time.monotonic() < deadline, "the servers did not start"
            time.sleep(0.2)
        yield jobs
        for command in commands:
            command.send(signal.SIGKILL)


@pytest.mark.timeout(240)
def test_fit_on_plain_servers(plain_cluster: dict[str, list[str]]) -> None:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(plain_cluster), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tfps.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x = np.ones((64, 4), "float32")
    history = model.fit(x, x.sum(axis=1), batch_size=8, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert int(model.optimizer.iterations.numpy()) == 24
    strategy.close()
