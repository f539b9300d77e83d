"""The clusters of a pool that are lent again, and those that end; clusters are played here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness import cluster_pool
from tests.harness.cluster_pool import MOST_CLUSTERS, ClusterPool
from tfps.cluster import Client, ClusterSpec, close_clients, register_client

ports = itertools.count(1)


class PlayedTask:
    def __init__(self) -> None:
        self.ended: int | None = None
        self.stopped = False

    def status(self) -> int | None:
        return self.ended

    def is_suspended(self) -> bool:
        return self.stopped


class PlayedCluster:
    def __init__(self, *, workers: int, ps: int, environment: Any) -> None:
        self.environment = environment
        jobs = {"chief": 1, "worker": workers, "ps": ps}
        self.spec = ClusterSpec(
            jobs={
                name: tuple(f"played:{next(ports)}" for _ in range(count))
                for name, count in jobs.items()
            },
            task_type="chief",
            task_index=0,
        )
        self.tasks = {(kind, at): PlayedTask() for kind, at, _ in self.spec.tasks("worker", "ps")}
        self.supervisor = SimpleNamespace(restarts=[])
        self.closed = False

    def process(self, task: tuple[str, int]) -> PlayedTask:
        return self.tasks[task]

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class Borrower:
    """Lends one cluster after the other from a pool."""

    def __init__(self, pool: ClusterPool) -> None:
        self.pool = pool

    def lend(self, workers: int = 2, ps: int = 1, **options: Any) -> Any:
        return self.pool.lend(PlayedCluster, workers=workers, ps=ps, **options)  # type: ignore[arg-type]

    def give_back(self, *clusters: Any, keep: bool = True) -> None:
        self.pool.take_back(clusters, keep=keep)

    def use(self, *size: int, **options: Any) -> Any:
        cluster = self.lend(*size, **options)
        self.give_back(cluster)
        return cluster


@pytest.fixture
def pool() -> Iterator[Borrower]:
    borrower = Borrower(ClusterPool())
    yield borrower
    borrower.pool.close()


def test_the_next_one_gets_it(pool: Borrower) -> None:
    first = pool.use()
    assert pool.use() is first
    assert not first.closed
    pool.pool.close()
    assert first.closed


def test_nobody_gets_what_is_in_use(pool: Borrower) -> None:
    assert pool.lend() is not pool.lend()


@pytest.mark.parametrize(
    "other", [{"workers": 3}, {"ps": 2}, {"environment": {"TFPS_LOGICAL_CPUS": "2"}}]
)
def test_another_size_or_other_variables_are_another_cluster(
    other: dict[str, Any], pool: Borrower
) -> None:
    first, second = pool.use(), pool.use(**other)
    assert second is not first
    assert second.environment == other.get("environment")
    assert pool.use() is first
    assert pool.use(**other) is second


def test_variables_of_this_process_count(pool: Borrower, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks have them, too; but not those that pytest sets for each test."""
    first = pool.use()
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    assert pool.use() is first
    monkeypatch.setenv("TFPS_CHUNK_BYTES", "100")
    assert pool.use() is not first


def test_there_are_few_at_once(pool: Borrower) -> None:
    clusters = [pool.use(workers) for workers in range(1, MOST_CLUSTERS + 3)]
    assert [cluster.closed for cluster in clusters] == [True, True] + [False] * MOST_CLUSTERS


def test_one_that_waits_ends_before_a_new_one_starts(pool: Borrower) -> None:
    waiting, used = pool.use(1), pool.lend(2)
    pool.lend(3)
    assert waiting.closed
    assert not used.closed
    pool.lend(4)  # a test that needs more at once gets them
    assert not used.closed


def kill(cluster: Any) -> None:
    cluster.tasks["worker", 1].ended = -9


def suspend(cluster: Any) -> None:
    cluster.tasks["ps", 0].stopped = True


def restart(cluster: Any) -> None:
    cluster.tasks["worker", 0] = PlayedTask()


def supervisor_restarts(cluster: Any) -> None:
    cluster.supervisor.restarts.append("worker 1 (SIGKILL)")


def leave_a_strategy(cluster: Any) -> None:
    tasks = frozenset([cluster.spec.address("ps", 0)])
    left: list[str] = []
    register_client(Client(tasks, left.append, lambda: None, is_open=lambda: not left))


CHANGES = [kill, suspend, restart, supervisor_restarts, leave_a_strategy]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_test_has_changed_ends(change: Callable[[Any], None], pool: Borrower) -> None:
    cluster = pool.lend()
    change(cluster)
    pool.give_back(cluster)
    assert cluster.closed
    assert not pool.use().closed
    close_clients([cluster.spec.address("ps", 0)], reason="it is closed")


def test_a_strategy_that_is_closed_is_none(pool: Borrower) -> None:
    cluster = pool.lend()
    leave_a_strategy(cluster)
    close_clients([cluster.spec.address("ps", 0)], reason="the test closes it")
    pool.give_back(cluster)
    assert pool.use() is cluster


def test_strategies_in_cycles_are_collected(
    pool: Borrower, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = pool.lend()
    leave_a_strategy(cluster)
    tasks = [cluster.spec.address("ps", 0)]
    collect = SimpleNamespace(collect=lambda: close_clients(tasks, reason="collected"))
    monkeypatch.setattr(cluster_pool, "gc", collect)
    pool.give_back(cluster)
    assert pool.use() is cluster


def test_after_a_failure_it_ends(pool: Borrower) -> None:
    cluster = pool.lend()
    pool.give_back(cluster, keep=False)
    assert cluster.closed


def test_one_that_changed_while_it_waited_ends(pool: Borrower) -> None:
    cluster = pool.use()
    kill(cluster)
    assert pool.use() is not cluster
    assert cluster.closed


def test_what_waits_can_be_ended(pool: Borrower) -> None:
    waiting, used = pool.use(1), pool.lend(2)
    pool.pool.end_idle()
    assert waiting.closed
    assert not used.closed
