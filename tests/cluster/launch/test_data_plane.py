"""The settings of `direct` in the environment of the tasks: its port, the job's secret."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

import tfps
from tests.cluster.launch.small_fit import small_fit
from tests.harness.leaks import assert_no_leaks
from tests.messages import check_message, raises
from tfps.cluster import lease_ports
from tfps.errors import ConfigError, TaskFailed
from tfps.launch import LocalCluster
from tfps.runtime.coordinator.data_plane import DataPlane

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def port() -> int:
    with lease_ports(1) as lease:
        return lease.ports[0]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[LocalCluster]:
    """A cluster with a secret and a fixed port."""
    environment, folder = {"TFPS_DATA_PORT": str(port)}, tmp_path_factory.mktemp("guarded")
    with assert_no_leaks(), contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TFPS_JOB_SECRET", "correct horse")  # which the tasks inherit
            cluster = stack.enter_context(
                LocalCluster(workers=1, ps=1, log_dir=folder, environment=environment)
            )
        yield cluster


def _strategy(cluster: LocalCluster) -> tfps.ParameterServerStrategy:
    return tfps.ParameterServerStrategy(cluster.cluster_resolver, transport="direct")


def test_a_secret_and_a_port_of_their_own(
    guarded: LocalCluster, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFPS_JOB_SECRET", "correct horse")
    with contextlib.closing(_strategy(guarded)) as strategy:
        plane = strategy.runtime.data_plane
        assert isinstance(plane, DataPlane)
        assert plane.endpoints[0].port == port
        model = small_fit(strategy)
        values, _ = strategy.pull()  # the coordinator's own way to the servers
        assert values[model.optimizer.iterations.path] == 8


@pytest.mark.repeats
@pytest.mark.parametrize("secret", ["battery staple", None])
def test_a_chief_with_another_secret_is_told_so(
    guarded: LocalCluster, secret: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if secret:
        monkeypatch.setenv("TFPS_JOB_SECRET", secret)
    with raises(ConfigError, "TFPS_JOB_SECRET", received="worker 0, ps 0"):
        _strategy(guarded)


@pytest.mark.rare
def test_a_task_that_comes_back_with_another_secret(
    guarded: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check at the start has passed: its connections are refused, and the error says why."""
    monkeypatch.setenv("TFPS_JOB_SECRET", "correct horse")
    with contextlib.closing(_strategy(guarded)) as strategy:
        with monkeypatch.context() as patch:
            patch.setenv("TFPS_JOB_SECRET", "battery staple")
            guarded.restart("worker", 0)
        with raises(tf.errors.UnavailableError, "TFPS_JOB_SECRET"):
            small_fit(strategy)
    log = guarded.logs["ps 0"].read_text()
    check_message(log, "this machine", received="wrong secret", remedy="TFPS_JOB_SECRET")
    guarded.restart("worker", 0)


@pytest.mark.rare
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, assert_no_leaks():
        number = taken.getsockname()[1]
        with pytest.raises(TaskFailed) as raised:
            LocalCluster(
                workers=1, ps=1, log_dir=tmp_path, environment={"TFPS_DATA_PORT": str(number)}
            )
    text = str(raised.value)
    assert "ps 0 ended with status 1" in text
    for each in (text, (tmp_path / "ps-0.log").read_text()):
        check_message(each, "TFPS_DATA_PORT", received=f"port {number}", remedy="free port")


@pytest.mark.slow
def test_a_worker_accepts_others_on_a_port_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port of the server is no port for a worker of the same machine."""
    with lease_ports(2) as lease:
        taken, free = lease.ports
    monkeypatch.setenv("TFPS_DATA_PORT", str(taken))
    with assert_no_leaks(), LocalCluster(workers=1, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, consistency=tfps.Synchronous(), placement="all_reduce"
        )
        with raises(ConfigError, "TFPS_DATA_PORT", received=f"port {taken}", remedy="free port"):
            small_fit(strategy)
        monkeypatch.setenv("TFPS_DATA_PORT", str(free))
        cluster.restart("worker", 0)
        small_fit(strategy)
        socket.create_connection(("127.0.0.1", free)).close()
        strategy.close()
