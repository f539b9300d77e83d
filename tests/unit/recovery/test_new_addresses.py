"""The new addresses of lost tasks: the resolver may be wrong, late, or absent."""

from __future__ import annotations

from typing import Any

import pytest

from tfps.cluster import ClusterSpec
from tfps.recovery.probing.probe import Task
from tfps.recovery.probing.task_identity import TaskIdentity
from tfps.recovery.servers import new_addresses
from tfps.recovery.servers.new_addresses import NewAddresses

CLUSTER = ClusterSpec(
    jobs={"chief": ("c:1",), "worker": ("w:1", "w:2"), "ps": ("p:1", "p:2")}, source="Resolver"
)
PS_0, PS_1 = ("ps", 0), ("ps", 1)
NOBODY = TaskIdentity(None, is_gone=True)


class Network:
    """The tasks that reply at each address, and the cluster that the resolver returns."""

    def __init__(self) -> None:
        self.resolved: Any = CLUSTER
        self.there: dict[str, TaskIdentity] = {}
        self.asked = 0

    def resolve(self) -> ClusterSpec | None:
        self.asked += 1
        if isinstance(self.resolved, Exception):
            raise self.resolved
        return self.resolved

    def ask_identities(
        self, addresses: dict[Task, str], *, deadline_s: float
    ) -> dict[Task, TaskIdentity]:
        return {task: self.there.get(address, NOBODY) for task, address in addresses.items()}


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    network = Network()
    monkeypatch.setattr(new_addresses, "ask_identities", network.ask_identities)
    monkeypatch.setattr(new_addresses, "ASK_INTERVAL_S", 0.0)
    return network


@pytest.fixture
def elsewhere(network: Network) -> NewAddresses:
    return NewAddresses(network.resolve, cluster=lambda: CLUSTER, deadline_s=1.0)


def test_only_lost_servers_that_answer_there_have_moved(
    network: Network, elsewhere: NewAddresses
) -> None:
    network.resolved = CLUSTER.with_address("ps", 0, "q:1").with_address("ps", 1, "q:2")
    assert elsewhere.find([PS_0]) == {}
    network.there = {"q:1": TaskIdentity(5, is_gone=False), "q:2": TaskIdentity(6, is_gone=False)}
    assert elsewhere.find([PS_0]) == {PS_0: "q:1"}
    assert elsewhere.find([PS_0, PS_1]) == {PS_0: "q:1", PS_1: "q:2"}
    assert elsewhere.problem == ""


@pytest.mark.parametrize(
    ("resolved", "text"),
    [
        (OSError("no route"), "new addresses of lost tasks: OSError('no route')"),
        (
            ClusterSpec(jobs={**CLUSTER.jobs, "ps": ("p:1",)}, source="Resolver"),
            "Resolver: cluster.ps: received 1 addresses, expected 2",
        ),
        (
            CLUSTER.with_address("ps", 0, "q:1"),
            "ps 0 should be at q:1, but worker 1 responds there",
        ),
    ],
)
def test_what_is_wrong_is_said_once_and_asked_again(
    resolved: object,
    text: str,
    network: Network,
    elsewhere: NewAddresses,
    caplog: pytest.LogCaptureFixture,
) -> None:
    network.resolved = resolved
    network.there = {"q:1": NOBODY._replace(other="worker 1")}
    for _ in range(3):
        assert elsewhere.find([PS_0]) == {}
    assert caplog.text.count(text) == 1
    assert text in elsewhere.problem
    network.resolved = CLUSTER.with_address("ps", 0, "q:3")
    network.there = {"q:3": TaskIdentity(5, is_gone=False)}
    assert elsewhere.find([PS_0]) == {PS_0: "q:3"}
    assert elsewhere.problem == ""


def test_workers_move_as_well(network: Network, elsewhere: NewAddresses) -> None:
    network.resolved = CLUSTER.with_address("worker", 1, "v:2").with_address("ps", 0, "q:1")
    network.there = {"v:2": TaskIdentity(5, is_gone=False), "q:1": TaskIdentity(6, is_gone=False)}
    assert elsewhere.find([("worker", 1)]) == {("worker", 1): "v:2"}
    assert elsewhere.find([("worker", 0)]) == {}


def test_an_address_that_another_task_still_has_is_waited_for(
    network: Network, elsewhere: NewAddresses, caplog: pytest.LogCaptureFixture
) -> None:
    network.resolved = CLUSTER.with_address("worker", 1, "v:2").with_address("ps", 0, "w:2")
    network.there = {"w:2": TaskIdentity(5, is_gone=False)}
    assert elsewhere.find([PS_0]) == {}
    assert "w:2" in caplog.text


def test_a_scheduler_is_not_asked_all_the_time(
    network: Network, elsewhere: NewAddresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_addresses, "ASK_INTERVAL_S", 1000.0)
    for _ in range(5):
        elsewhere.find([PS_0])
    assert network.asked == 1


def test_nobody_is_asked_while_nothing_is_lost(network: Network, elsewhere: NewAddresses) -> None:
    network.resolved = CLUSTER.with_address("ps", 0, "q:1")
    assert elsewhere.find([]) == {}
    assert network.asked == 0


def test_tasks_of_one_process_are_nowhere_else(network: Network, elsewhere: NewAddresses) -> None:
    network.resolved = None
    assert elsewhere.find([PS_0, PS_1]) == {}
    assert elsewhere.problem == ""
