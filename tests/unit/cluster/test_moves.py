"""The current state of a cluster, found from any earlier state of it."""

from __future__ import annotations

import itertools

import pytest

from tfps.cluster import ClusterSpec, record_move
from tfps.cluster.moves import get_current_cluster

numbers = itertools.count(1)


@pytest.fixture
def spec() -> ClusterSpec:
    """A cluster that no other test has moved."""
    jobs = {"chief": (f"c:{next(numbers)}",), "worker": ("w:1",), "ps": ("p:1", "p:2")}
    return ClusterSpec(jobs=jobs)


def test_every_state_leads_to_the_newest(spec: ClusterSpec) -> None:
    second = spec.with_address("ps", 0, "q:1")
    third = second.with_address("ps", 1, "q:2")
    record_move(spec, second)
    record_move(second, third)
    for state in (spec, second, third):
        assert get_current_cluster(state) == third


def test_a_server_may_come_back_to_where_it_was(spec: ClusterSpec) -> None:
    away = spec.with_address("ps", 0, "q:1")
    record_move(spec, away)
    record_move(away, spec)
    assert get_current_cluster(away) == get_current_cluster(spec) == spec


def test_another_cluster_has_not_moved(spec: ClusterSpec) -> None:
    record_move(spec, spec.with_address("ps", 0, "q:1"))
    other = spec.with_address("worker", 0, "w:2")
    assert get_current_cluster(other) is other
