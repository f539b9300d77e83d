"""Replies of a server when parameters travel as differences to what a worker holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tfps
from tests.unit.one_process.jobs import FitJob
from tfps.compression import Delta, PushPull, TopK
from tfps.consistency.ledger import Status
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.rare


@pytest.fixture(scope="module")
def job() -> Iterator[FitJob]:
    compression: Any = PushPull(pull=Delta(TopK(0.1)))
    with InProcessCluster(workers=2, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, compression=compression)
        yield FitJob(strategy)
        strategy.close()


def _push(job: FitJob, at: Any, **fields: int) -> Any:
    return job.push(0, **{"ticket": at.ticket, "base_version": at.version, **fields})


def test_a_worker_of_another_version_joins_anew(job: FitJob) -> None:
    """Its push counts, as it would where the reply was lost, and its ticket comes again."""
    job.requests.open_tickets(8)
    at = _push(job, _push(job, job.join(0, servers=(0,))))
    assert at.status is Status.OK
    weight = job.weight(0)
    assert _push(job, at, base_version=at.version - 1).status is Status.EVICTED
    assert job.weight(0) > weight
    again = _push(job, job.join(0, servers=(0,)))
    assert again.status is Status.DUPLICATE
    assert _push(job, again).status is Status.OK
    job.end()


def test_one_that_was_replaced_changes_nothing_of_what_the_next_one_holds(job: FitJob) -> None:
    job.requests.open_tickets(8)
    at, old = job.join(0, servers=(0,)), job.incarnations[0]
    again = job.join(0, servers=(0,))
    assert _push(job, at, incarnation=old).status is Status.EVICTED
    assert _push(job, again).status is Status.OK
    job.end()
