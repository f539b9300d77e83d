"""Payloads too large for a carrier travel in chunks, and train as if they were small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import tensorflow as tf

import tfps
from tests.unit.one_process.jobs import STEPS, FitJob, FunctionJob
from tests.unit.one_process.unit_steps import BATCH
from tfps.consistency.ledger import Status
from tfps.testing import InProcessCluster
from tfps.transport.carrier import Carrier, InProcessCarrier, Message, ServerCall
from tfps.transport.chunked_carrier import ChunkedCarrier

CHUNK_BYTES = 5  # two weights have 8


class NarrowCarrier:
    """Takes no message that is larger than a chunk.

    Args:
        inner: brings those that it takes.
    """

    def __init__(self, inner: Carrier) -> None:
        self._inner = inner
        self.name = inner.name

    def exchange(self, calls: Mapping[int, ServerCall]) -> dict[int, Message]:
        for call in calls.values():
            self._check(call.request)
        replies = self._inner.exchange(calls)
        for reply in replies.values():
            self._check(reply)
        return replies

    def _check(self, message: Message) -> None:
        size = message.payload.shape[0]
        if size is None:
            tf.debugging.assert_less_equal(tf.size(message.payload), CHUNK_BYTES)
        else:
            assert size <= CHUNK_BYTES


@pytest.fixture(scope="module")
def narrow() -> Iterator[tfps.ParameterServerStrategy]:
    with InProcessCluster(workers=1, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        runtime = strategy.runtime
        runtime.data_plane.plain_carrier = ChunkedCarrier(
            NarrowCarrier(InProcessCarrier()),
            contents={contents.device: contents for contents in runtime.contents},
            workers=1,
            chunk_bytes=CHUNK_BYTES,
        )
        yield strategy


@pytest.mark.repeats
def test_fit(narrow: tfps.ParameterServerStrategy) -> None:
    job = FitJob(narrow)
    assert job.counts == [STEPS, STEPS]
    assert job.examples == BATCH * STEPS
    ticket = job.requests.open_tickets(2)
    job.join(0, servers=(0,))
    pushed = [job.push(0, ticket=ticket) for _ in range(2)]
    assert [reply.status for reply in pushed] == [Status.OK, Status.DUPLICATE]
    assert job.weight(0) == pushed[0].weight == STEPS + 1
    older = job.incarnations[0]
    job.join(0, servers=(0,))
    # The seat for a worker's parts has been taken over.
    assert job.push(0, ticket=ticket + 1, incarnation=older).status is Status.EVICTED
    assert job.push(0, ticket=ticket + 1).weight == STEPS + 2
    job.end()


@pytest.mark.slow
def test_functions(narrow: tfps.ParameterServerStrategy) -> None:
    job = FunctionJob(narrow)
    assert job.counts == [STEPS, STEPS]
    assert job.push(0).weight == job.weight(0) == STEPS + 1
