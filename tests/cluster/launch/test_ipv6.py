"""A cluster whose addresses are of IPv6 trains on connections of its own."""

from __future__ import annotations

import contextlib
import json
import socket
import sys

import pytest

import tfps
from tests.cluster.launch.small_fit import small_fit
from tests.harness.command import Command
from tests.harness.leaks import assert_no_leaks
from tfps.cluster import ClusterSpec, lease_ports
from tfps.runtime.coordinator.data_plane import DataPlane

DEADLINE_S = 150
SERVE = [sys.executable, "-m", "tfps", "serve"]


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.rare
@pytest.mark.timeout(180)
@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
def test_trains_directly() -> None:
    with lease_ports(3, host="::1") as lease:
        chief, worker, ps = (f"[::1]:{port}" for port in lease.ports)
    spec = ClusterSpec(jobs={"chief": (chief,), "worker": (worker,), "ps": (ps,)})
    with assert_no_leaks(), contextlib.ExitStack() as stack:
        for task_type in ("worker", "ps"):
            environment = {"TF_CONFIG": json.dumps(spec.tf_config(task_type, 0))}
            command = Command(SERVE, deadline_s=DEADLINE_S, environment=environment)
            stack.enter_context(command).wait_for("serves at")
        strategy = tfps.ParameterServerStrategy(
            spec.for_task("chief", 0).tf_resolver(), transport="direct"
        )
        plane = strategy.runtime.data_plane
        assert isinstance(plane, DataPlane)
        assert plane.endpoints[0].host == "::1"
        small_fit(strategy)
        strategy.close()
