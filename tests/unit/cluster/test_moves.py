"""The current state of a cluster, found from any earlier state of it."""

from __future__ import annotations

import pytest

from tfps.cluster import ClusterSpec, moves, note_move
from tfps.cluster.moves import cluster_now

SPEC = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1", "p:2")})


@pytest.fixture(autouse=True)
def _nothing_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_now", {})


def test_every_state_leads_to_the_newest() -> None:
    second = SPEC.with_address("ps", 0, "q:1")
    third = second.with_address("ps", 1, "q:2")
    note_move(SPEC, second)
    note_move(second, third)
    for spec in (SPEC, second, third):
        assert cluster_now(spec) == third


def test_a_server_may_come_back_to_where_it_was() -> None:
    away = SPEC.with_address("ps", 0, "q:1")
    note_move(SPEC, away)
    note_move(away, SPEC)
    assert cluster_now(away) == cluster_now(SPEC) == SPEC


def test_another_cluster_has_not_moved() -> None:
    note_move(SPEC, SPEC.with_address("ps", 0, "q:1"))
    other = SPEC.with_address("worker", 0, "w:2")
    assert cluster_now(other) is other
