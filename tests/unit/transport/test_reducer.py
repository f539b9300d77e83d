"""Sums between workers: equal bits for all, an end for all if one is lost."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from tests.messages import check_message
from tfps.cluster import lease_ports
from tfps.transport.direct import Endpoint, Plain
from tfps.transport.links import Peers
from tfps.transport.reducer import Reducer

JOB = 7


def make_reducer(port: int = 0) -> Reducer:
    return Reducer(host="localhost", port=port, encryption=Plain())


class Workers:
    """Reducers of some workers in this process."""

    def __init__(self, count: int) -> None:
        self.reducers = [make_reducer() for _ in range(count)]
        secret = secrets.token_bytes(32)
        found = {
            worker: dataclasses.replace(
                Endpoint.from_json(reducer.accept(JOB, secret).decode()), host="localhost"
            )
            for worker, reducer in enumerate(self.reducers)
        }
        self.peers = Peers(found, secret.hex()).to_json().encode()
        self.pool = ThreadPoolExecutor(count)

    def place(self, worker: int, *, generation: int, members: tuple[int, ...]) -> np.ndarray:
        mask = [int(each in members) for each in range(len(self.reducers))]
        return np.array([JOB, generation, worker, *mask], np.int64)

    def start(self, worker, vectors, *, generation=1, members=(0, 1, 2)):
        place = self.place(worker, generation=generation, members=members)
        return self.pool.submit(self.reducers[worker].reduce, self.peers, place, *vectors)

    def end(self, worker: int) -> None:
        """End all connections of a worker, as its process would."""
        self.reducers[worker].regroup(JOB, worker, 1 << 40)


@pytest.fixture
def workers() -> Iterator[Workers]:
    three = Workers(3)
    yield three
    for worker in range(3):
        three.end(worker)
    three.pool.shutdown()


def vectors_of(worker: int, items: int = 1000) -> list[np.ndarray]:
    rng = np.random.default_rng(worker)
    return [
        rng.normal(size=items).astype(np.float32),
        rng.normal(size=3).astype(ml_dtypes.bfloat16),
        np.array([worker, 1.0]),
    ]


@pytest.mark.parametrize("members", [(0, 1, 2), (0, 2), (1,)])
def test_sums_are_equal_bit_for_bit(workers, members) -> None:
    for _ in range(3):
        results = [
            workers.start(w, vectors_of(w), members=members, generation=1 + len(members))
            for w in members
        ]
        sums = [future.result(timeout=20) for future in results]
        expected = [np.sum(each, axis=0) for each in zip(*map(vectors_of, members), strict=True)]
        for done, *own in sums:
            assert done == 1
            for mine, first, exact in zip(own, sums[0][1:], expected, strict=True):
                assert mine.tobytes() == first.tobytes()
                assert mine.dtype == first.dtype
                np.testing.assert_allclose(
                    mine.astype(np.float64), exact.astype(np.float64), rtol=2e-2, atol=1e-2
                )


def test_large_vectors_do_not_block_each_other(workers) -> None:
    results = [workers.start(w, vectors_of(w, items=3_000_000)) for w in range(3)]
    sums = [future.result(timeout=60) for future in results]
    assert all(each[0] == 1 and each[1].tobytes() == sums[0][1].tobytes() for each in sums)


def test_all_end_if_one_is_lost(workers) -> None:
    results = [workers.start(w, vectors_of(w)) for w in range(3)]
    assert [future.result(timeout=20)[0] for future in results] == [1, 1, 1]
    waiting = [workers.start(w, vectors_of(w)) for w in (0, 2)]
    workers.end(1)
    assert [future.result(timeout=20)[0] for future in waiting] == [0, 0]


def test_a_worker_that_hangs_is_left_out(workers) -> None:
    results = [workers.start(w, vectors_of(w)) for w in range(3)]
    assert [future.result(timeout=20)[0] for future in results] == [1, 1, 1]
    waiting = [workers.start(w, vectors_of(w)) for w in (0, 2)]
    for worker in (0, 2):
        workers.reducers[worker].part(JOB, 1)
    assert [future.result(timeout=20)[0] for future in waiting] == [0, 0]
    again = [workers.start(w, vectors_of(w), generation=2, members=(0, 2)) for w in (0, 2)]
    assert [future.result(timeout=20)[0] for future in again] == [1, 1]


def test_an_older_generation_has_no_sums(workers) -> None:
    workers.reducers[1].regroup(JOB, 1, 5)
    result = workers.start(1, vectors_of(1), generation=4)
    done, *zeros = result.result(timeout=20)
    assert done == 0
    assert not any(each.astype(np.float64).any() for each in zeros)


def test_the_port_is_the_configured_one() -> None:
    """It is taken while a worker has a job, and the worker says so to the next one."""
    with lease_ports(1) as lease:
        (port,) = lease.ports
    first, second = make_reducer(port), make_reducer(port)
    assert Endpoint.from_json(first.accept(JOB, b"secret").decode()).port == port
    problem = json.loads(second.accept(JOB, b"secret"))
    check_message(problem, "TFPS_DATA_PORT", received=f"port {port}", remedy="free port")
    first.retire(JOB)
    assert Endpoint.from_json(second.accept(JOB, b"secret").decode()).port == port
    second.retire(JOB)
