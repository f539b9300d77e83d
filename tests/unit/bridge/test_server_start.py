"""The error of TensorFlow's server that cannot start becomes one that names the port."""

from __future__ import annotations

import contextlib
import socket

import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tfps.bridge.functions.server_start import check_server_start
from tfps.cluster import ClusterSpec, lease_ports
from tfps.cluster.ports import PortLease
from tfps.errors import ListenError


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> ClusterSpec:
    monkeypatch.delenv(PortLease.REUSE_PORT_VARIABLE, raising=False)
    with lease_ports(3) as lease:
        chief, worker, ps = (f"127.0.0.1:{port}" for port in lease.ports)
    return ClusterSpec(jobs={"chief": (chief,), "worker": (worker,), "ps": (ps,)})


def _start_once_the_port_is_taken(spec: ClusterSpec, taken: contextlib.ExitStack) -> None:
    port = int(spec.address("ps", 0).rpartition(":")[2])
    with check_server_start(spec, "ps", 0):
        taken.enter_context(socket.create_server(("127.0.0.1", port)))
        tf.distribute.Server(spec.jobs, job_name="ps", task_index=0)


def test_a_port_that_is_taken_between_the_check_and_the_start(spec: ClusterSpec) -> None:
    address = spec.address("ps", 0)
    with contextlib.ExitStack() as taken, raises(ListenError, "ps 0", received=address):
        _start_once_the_port_is_taken(spec, taken)


def test_other_errors_stay(spec: ClusterSpec) -> None:
    with (
        pytest.raises(tf.errors.UnknownError, match="something else"),
        check_server_start(spec, "ps", 0),
    ):
        raise tf.errors.UnknownError(None, None, "something else")


def test_the_chief_is_told_before_it_waits_for_the_others(spec: ClusterSpec) -> None:
    port = int(spec.address("chief", 0).rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        with raises(ListenError, "chief 0", received=port):
            tfps.ParameterServerStrategy(spec.for_task("chief", 0).tf_resolver())
