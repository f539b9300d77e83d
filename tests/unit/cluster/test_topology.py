"""The devices of tasks."""

from __future__ import annotations

from tests.messages import raises
from tfps.cluster.topology import Topology
from tfps.errors import ConfigError

DEVICES = [f"/job:localhost/replica:0/task:0/device:CPU:{number}" for number in range(4)]


def test_tasks_of_a_cluster() -> None:
    topology = Topology.of_tasks(workers=2, servers=1)
    assert topology.chief == "/job:chief/replica:0/task:0/device:CPU:0"
    assert topology.worker(1) == "/job:worker/replica:0/task:1/device:CPU:0"
    assert topology.server(0) == "/job:ps/replica:0/task:0/device:CPU:0"
    # A worker's closure may use any of its devices: a GPU is one of them.
    assert topology.worker_scopes == tuple(f"/job:worker/replica:0/task:{k}" for k in range(2))


def test_tasks_of_one_process() -> None:
    topology = Topology.of_devices(DEVICES, workers=1)
    assert topology.chief == DEVICES[0]
    assert topology.workers == topology.worker_scopes == (DEVICES[1],)
    assert topology.servers == tuple(DEVICES[2:])


def test_tasks_share_no_device() -> None:
    with raises(ConfigError, "Topology", received=DEVICES[1]):
        Topology.of_devices([*DEVICES, DEVICES[1]], workers=1)
