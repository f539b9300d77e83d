"""The list of hosts that gRPC reaches without a proxy, as it reads the environment."""

from __future__ import annotations

import os

import pytest

from tfps.cluster import ClusterSpec, prepare_process
from tfps.cluster.proxies import EXCLUSIONS, PROXIES, exclude_from_proxies

ADDRESSES = ["10.0.0.1:1", "[fd00::1]:2", "node1:3", "10.0.0.1:4"]
HOSTS = "10.0.0.1,fd00::1,node1"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *EXCLUSIONS):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)


def _lists() -> dict[str, str]:
    return {name: os.environ[name] for name in EXCLUSIONS if name in os.environ}


@pytest.mark.parametrize("name", PROXIES)
def test_hosts_join_the_list_that_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    exclude_from_proxies(ADDRESSES)
    assert _lists() == {"no_grpc_proxy": HOSTS}
    exclude_from_proxies(["node1:7", "node2:3"])
    assert _lists() == {"no_grpc_proxy": f"{HOSTS},node2"}


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        ({"no_proxy": "a, b"}, "a,b,"),
        ({"no_grpc_proxy": "c", "no_proxy": "a,b"}, "c,"),
        ({"no_grpc_proxy": "", "no_proxy": "a,b"}, ""),
    ],
)
def test_the_users_list_goes_on(
    given: dict[str, str], begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    exclude_from_proxies(ADDRESSES)
    assert _lists() == {**given, "no_grpc_proxy": f"{begins}{HOSTS}"}


def test_without_a_proxy_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "")
    exclude_from_proxies(ADDRESSES)
    assert _lists() == {}


def test_a_process_excludes_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")
    spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
    prepare_process("worker", spec)
    assert _lists() == {"no_grpc_proxy": "c,w,p"}
