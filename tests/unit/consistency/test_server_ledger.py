"""The ledger as resources, opened by name in traced functions, follow the model step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.consistency.ledger_model import ServerModel, Wire
from tfps.bridge.functions.server_function import trace_server_function
from tfps.consistency import chief_requests, issuing
from tfps.consistency import ledger as decide
from tfps.consistency.admission import admit
from tfps.consistency.applied_window import TICKET_CELLS, cell_of_ticket
from tfps.consistency.histogram import BINS_PER_DOUBLING, DURATION_BINS, bin_of
from tfps.consistency.ledger import MAX_CALLS, NO_TICKET, Status
from tfps.consistency.server_ledger import ServerLedger
from tfps.runtime.coordinator.server_contents import ServerContents
from tfps.transport.message import Kind

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
WORKERS = 2
INTEGER = tf.TensorSpec([], tf.int64)


@pytest.fixture
def contents(request: pytest.FixtureRequest) -> ServerContents:
    return ServerContents(device=DEVICE, container=f"test_{request.node.name}")


@pytest.fixture
def server_ledger(contents: ServerContents) -> Iterator[ServerLedger]:
    yield ServerLedger(contents, workers=WORKERS)
    contents.free(contents.records)


def _traced(
    function: Callable[..., Sequence[tf.Tensor]], arguments: int
) -> Callable[..., list[int]]:
    concrete = trace_server_function(function, device=DEVICE, signature=[INTEGER] * arguments)

    def call(*values: int) -> list[int]:
        outputs = concrete(*(tf.constant(value, tf.int64) for value in values))
        return [int(output) for output in outputs]

    return call


def _join(server_ledger: ServerLedger) -> Callable[..., list[int]]:
    def join(worker: tf.Tensor, incarnation: tf.Tensor) -> list[tf.Tensor]:
        with server_ledger.locked():
            ledger = server_ledger.open()
            accepted = decide.enter(ledger, worker=worker, incarnation=incarnation)
            ticket = issuing.issue(ledger, alive=accepted, worker=worker, pushed=NO_TICKET)
            server_ledger.write_changes(ledger)
        return [ticket]

    return _traced(join, 2)


def _push(server_ledger: ServerLedger) -> Callable[..., list[int]]:
    def push(
        worker: tf.Tensor, incarnation: tf.Tensor, ticket: tf.Tensor, acked_ticket: tf.Tensor
    ) -> list[tf.Tensor]:
        key, cell = decide.key_of(ticket, 0), cell_of_ticket(ticket)
        with server_ledger.locked():
            ledger, applied = server_ledger.open(), server_ledger.applied_key(cell)
            alive = ledger.is_alive(worker, incarnation)
            admission = admit(
                ledger,
                alive=alive,
                is_new=key > applied,
                in_time=True,
                counts_update=True,
                staleness_bin=0,
            )
            decide.close(
                ledger, alive=alive, worker=worker, ticket=acked_ticket, steps=1, examples=7
            )
            following = issuing.issue(ledger, alive=alive, worker=worker, pushed=ticket)
            server_ledger.record_applied_key(cell=cell, key=tf.where(admission.fresh, key, applied))
            server_ledger.write_changes(ledger)
        return [tf.cast(admission.status, tf.int64), following]

    return _traced(push, 4)


def _cells(server_ledger: ServerLedger) -> Callable[[], list[int]]:
    def sample(_: tf.Tensor) -> list[tf.Tensor]:
        with server_ledger.locked():
            return [server_ledger.cells()]

    concrete = trace_server_function(sample, device=DEVICE, signature=[INTEGER])
    return lambda: list(concrete(tf.constant(0, tf.int64))[0].numpy())


def _open(server_ledger: ServerLedger, count: int) -> None:
    def trace(tickets: tf.Tensor) -> list[tf.Tensor]:
        with server_ledger.locked():
            ledger = server_ledger.open()
            first = chief_requests.open_tickets(ledger, count=tickets, term=0, move=1)
            server_ledger.write_changes(ledger)
        return [first]

    _traced(trace, 1)(count)


def test_follows_the_model(server_ledger: ServerLedger) -> None:
    model = ServerModel(index=0, workers=WORKERS, calls=(True,))
    join, push, cells = _join(server_ledger), _push(server_ledger), _cells(server_ledger)
    _open(server_ledger, 3)
    model.open_tickets(3)
    # (worker, incarnation, ticket, closes): a zombie of worker 1, then a ticket that comes twice.
    pushes = [(0, 1, 0, -1), (1, 2, 1, -1), (1, 9, 1, -1), (0, 1, 2, 0), (0, 1, 2, 2)]
    for worker, incarnation in [(0, 1), (1, 2), (1, 1)]:
        wire = Wire(Kind.JOIN, worker, incarnation)
        assert join(worker, incarnation) == [model.reply_to(wire).next_ticket]
    for worker, incarnation, ticket, acked_ticket in pushes:
        version = model[model.layout.VERSION]
        wire = Wire(
            Kind.PUSH,
            worker,
            incarnation,
            ticket,
            base_version=version,
            acked_ticket=acked_ticket,
            examples=7,
        )
        reply = model.reply_to(wire)
        found = push(worker, incarnation, ticket, acked_ticket)
        assert found == [int(reply.status), reply.next_ticket], wire
        assert cells()[1:] == model.cells[1:], wire
    assert model[model.layout.VERSION] == 3
    assert model[model.layout.DROPPED] == model[model.layout.DUPLICATES] == 1


def test_a_ticket_is_remembered_until_the_window_comes_round(server_ledger: ServerLedger) -> None:
    join, push = _join(server_ledger), _push(server_ledger)
    _open(server_ledger, 0)
    join(0, 1)
    assert push(0, 1, 5, -1)[0] == Status.OK
    assert push(0, 1, 5, -1)[0] == Status.DUPLICATE
    assert push(0, 1, 5 + TICKET_CELLS, -1)[0] == Status.OK
    assert push(0, 1, 5, -1)[0] == Status.DUPLICATE  # too old to be known: never applied twice


def test_statuses_are_dense() -> None:
    assert [int(status) for status in Status] == list(range(len(Status)))


def test_keys_of_a_ticket_grow_with_its_calls() -> None:
    keys = [
        decide.key_of(ticket, call_number) for ticket in (0, 1) for call_number in range(MAX_CALLS)
    ]
    assert keys == sorted(set(keys))


def test_durations_fall_into_the_bins_of_the_histogram(server_ledger: ServerLedger) -> None:
    values = [-1, 0, 1, 2, 3, 1000, 999_999, 1 << 33]

    def count(measured: tf.Tensor) -> list[tf.Tensor]:
        with server_ledger.locked():
            ledger = server_ledger.open()
            ledger.count_if(True, server_ledger.layout.EXCHANGES)
            server_ledger.count_durations(ledger, 1, tf.stack([measured, -1]))
            server_ledger.write_changes(ledger)
            server_ledger.count_seconds(3, tf.cast(tf.maximum(measured, 0), tf.float64) / 1e6)
        return [tf.constant(0)]

    counted = _traced(count, 1)
    for value in values:
        counted(value)
    cells: Any = np.array(_cells(server_ledger)())
    begin = server_ledger.layout.duration(0, 0)
    bins = cells[begin : begin + 4 * DURATION_BINS].reshape(4, DURATION_BINS)
    expected = np.bincount([bin_of(value) for value in values[1:]], minlength=DURATION_BINS)
    assert bins[1].tolist() == expected.tolist()
    expected[0] += 1  # what was not measured counted as nothing here
    assert bins[3].tolist() == expected.tolist()
    assert not bins[0].any()
    assert not bins[2].any()
    assert BINS_PER_DOUBLING == 4


def test_all_changes_of_a_decision_are_two_operations(server_ledger: ServerLedger) -> None:
    """Each operation costs a server time, and the trace as well."""

    def leave(worker: tf.Tensor) -> list[tf.Tensor]:
        with server_ledger.locked():
            ledger = server_ledger.open()
            decide.remove(ledger, worker=worker, leaves=worker >= 0, closed=tf.constant(False))
            server_ledger.write_changes(ledger)
        return [worker]

    graph = trace_server_function(leave, device=DEVICE, signature=[INTEGER]).graph
    kinds = Counter(operation.type for operation in graph.get_operations())
    assert kinds["ResourceScatterUpdate"] == kinds["ResourceScatterAdd"] == 1


@pytest.mark.parametrize("how", ["anew", "replayed"])
def test_freed_ledgers_are_blank_when_made_again(
    server_ledger: ServerLedger, contents: ServerContents, how: str
) -> None:
    _join(server_ledger)(0, 4)
    assert _cells(server_ledger)() != server_ledger.layout.make_blank_cells()
    for resource in contents.records:
        resource.destroy()
    if how == "replayed":
        contents.recreate()
    else:
        ServerLedger(contents, workers=WORKERS)
    assert _cells(server_ledger)() == server_ledger.layout.make_blank_cells()
