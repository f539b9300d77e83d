"""A carrier brings what it is given: one server function, the same replies through each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.bridge.functions.server_function import trace_server_function
from tfps.consistency import ledger as decide
from tfps.consistency.admission import admit
from tfps.consistency.applied_window import cell_of_ticket
from tfps.consistency.server_ledger import ServerLedger
from tfps.launch import LocalCluster
from tfps.runtime.coordinator.server_contents import ServedPlan, ServerContents
from tfps.transport.carrier import Carrier, GrpcCarrier, InProcessCarrier, Message, ServerCall
from tfps.transport.layout import Layout
from tfps.transport.message import PROTOCOL, REPLY_FIELDS, REQUEST_FIELDS, Kind, Reply, Request
from tfps.transport.packing import pack, unpack
from tfps.transport.service import Entry, Service

CHIEF = "/job:chief/replica:0/task:0/device:CPU:0"
SERVERS = [f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(2)]
LAYOUT = Layout.from_entries(
    [("weight", "float32", (3, 5)), ("count", "int64", ()), ("mask", "bool", (7,))]
)
PLAN = 7
# (incarnation, ticket, ids): the last but one is refused, the last is a ticket that comes twice.
REQUESTS = [(1, 0, []), (1, 1, [7, 3]), (1, 70_000, range(1000)), (9, 2, []), (1, 1, [5])]


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    resolver = cluster(workers=1, ps=2).cluster_resolver
    made = tfps.ParameterServerStrategy(resolver, transport="direct")
    yield made
    made.close()


class EchoServer:
    """A server function with state, ids and a payload: it admits, counts, and doubles."""

    def __init__(self, device: str, *, container: str) -> None:
        self.device, self.contents = device, ServerContents(device=device, container=container)
        self.ledger = ServerLedger(self.contents, workers=1)
        self.function = trace_server_function(
            self._serve, device=device, signature=Message.signature(REQUEST_FIELDS)
        )

    def _serve(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        server_ledger, ticket = self.ledger, header[Request.TICKET]
        key, cell = decide.key_of(ticket, 0), cell_of_ticket(ticket)
        with server_ledger.locked():
            ledger, applied = server_ledger.open(), server_ledger.applied_key(cell)
            decide.enter(ledger, worker=header[Request.WORKER], incarnation=1)
            server_ledger.write_changes(ledger)
            ledger = server_ledger.open()
            alive = ledger.is_alive(header[Request.WORKER], header[Request.INCARNATION])
            admission = admit(
                ledger,
                alive=alive,
                is_new=key > applied,
                in_time=True,
                counts_update=True,
                staleness_bin=0,
            )
            server_ledger.record_applied_key(cell=cell, key=tf.where(admission.fresh, key, applied))
            server_ledger.write_changes(ledger)
        reply = {
            Reply.STATUS: admission.status,
            Reply.VERSION: ledger_version(ledger) + tf.cast(admission.fresh, tf.int64),
            Reply.STALENESS: ledger_version(ledger) - header[Request.BASE_VERSION],
            Reply.NEXT_TICKET: ticket + 1,
            Reply.CLOCK: 0,
            Reply.OTHER_WRITES: ticket + 2,
        }
        tensors = unpack(LAYOUT, payload)
        doubled = {
            "weight": 2 * tensors["weight"],
            "count": 2 * tensors["count"],
            "mask": tf.logical_not(tensors["mask"]),
        }
        return [
            tf.stack([tf.cast(reply[field], tf.int64) for field in Reply]),
            tf.reverse(ids, [0]),
            pack(LAYOUT, doubled),
        ]


def ledger_version(ledger: decide.Ledger) -> tf.Tensor:
    return ledger.read(ledger.layout.VERSION)


def _request(
    incarnation: int, ticket: int, ids: object, server: int, *, job_id: int = 0
) -> Message:
    fields = {
        Request.PROTOCOL: PROTOCOL,
        Request.JOB: job_id,
        Request.PLAN: PLAN,
        Request.KIND: Kind.PUSH,
        Request.INCARNATION: incarnation,
        Request.TICKET: ticket,
        Request.BASE_VERSION: 0,
    }
    tensors = {
        "weight": tf.range(15.0) + 100.0 * server + ticket,
        "count": tf.constant(1 << 40, tf.int64),
        "mask": tf.constant([True, False] * 3 + [True]),
    }
    flat = tf.nest.map_structure(
        lambda tensor: tf.reshape(tensor, [-1]), {n: tensors[n] for n in LAYOUT.names}
    )
    return Message(
        tf.constant([fields.get(field, 0) for field in Request], tf.int64),
        tf.constant(np.array(list(ids), np.int64)),  # type: ignore[call-overload]
        pack(LAYOUT, flat),
    )


def _replies(
    carrier: Carrier, servers: list[EchoServer], *, job_id: int = 0
) -> list[list[np.ndarray]]:
    """All replies of all servers to all requests, through one traced exchange."""

    @tf.function(autograph=False)
    def exchange(requests: list[Message]) -> dict[int, Message]:
        return carrier.exchange(
            {
                index: ServerCall(server.device, server.function, request, LAYOUT.size_bytes)
                for index, (server, request) in enumerate(zip(servers, requests, strict=True))
            }
        )

    replies = []
    with tf.device(CHIEF):
        for incarnation, ticket, ids in REQUESTS:
            requests = [
                _request(incarnation, ticket, ids, p, job_id=job_id) for p in range(len(servers))
            ]
            messages = exchange(requests)
            assert sorted(messages) == list(range(len(servers)))
            for index in range(len(servers)):
                reply = messages[index]
                assert reply.header.shape == [REPLY_FIELDS]
                replies.append([part.numpy() for part in reply])
    for server in servers:
        server.contents.free(server.contents.records)
    return replies


def _directly(strategy: tfps.ParameterServerStrategy) -> list[list[np.ndarray]]:
    """Through the service loops of the servers, from this process."""
    runtime = strategy.runtime
    assert runtime.data_plane.carriers == ("direct", "direct")
    servers = [EchoServer(device, container="carriers_direct") for device in SERVERS]
    for server, echo in zip(runtime.servers, servers, strict=True):
        entry = Entry(Kind.PUSH, 0, LAYOUT.size_bytes, LAYOUT.size_bytes)
        service = Service(runtime.job_id, PLAN, 10, (entry,))
        runtime.install(server, ServedPlan(service, (echo.function,)))
    return _replies(runtime.data_plane.carrier, servers, job_id=runtime.job_id)


def test_replies_are_equal(strategy: tfps.ParameterServerStrategy) -> None:
    remote = [EchoServer(device, container="carriers_remote") for device in SERVERS]
    local = [EchoServer(CHIEF, container=f"carriers_local_{p}") for p in range(len(SERVERS))]
    through_grpc = _replies(GrpcCarrier(), remote)
    in_process = _replies(InProcessCarrier(), local)
    directly = _directly(strategy)
    for found in (through_grpc, directly):
        for reply, expected in zip(found, in_process, strict=True):
            for part, expected_part in zip(reply, expected, strict=True):
                np.testing.assert_array_equal(part, expected_part)
    statuses = [int(reply[0][Reply.STATUS]) for reply in through_grpc[:: len(SERVERS)]]
    ok, refused, twice = decide.Status.OK, decide.Status.EVICTED, decide.Status.DUPLICATE
    assert statuses == [ok, ok, ok, refused, twice]
    assert through_grpc[-1][0][Reply.VERSION] == 3
    assert through_grpc[-1][1].tolist() == [5]


@pytest.mark.repeats
def test_a_loop_on_the_server_answers_like_single_calls(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    server = EchoServer(SERVERS[0], container="carriers_loop")

    def loop(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        next_ticket = tf.one_hot(int(Request.TICKET), REQUEST_FIELDS, dtype=tf.int64)

        def body(turn: tf.Tensor, reply: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return turn + 1, server.function(header + turn * next_ticket, ids, payload)[0]

        turn = tf.zeros([], tf.int64)
        _, reply = tf.while_loop(
            lambda turn, _: turn < 20, body, [turn, tf.zeros([REPLY_FIELDS], tf.int64)]
        )
        return [reply, ids, payload]

    looping = trace_server_function(
        loop, device=SERVERS[0], signature=Message.signature(REQUEST_FIELDS)
    )
    call = ServerCall(SERVERS[0], looping, _request(1, 0, [], 0), LAYOUT.size_bytes)

    @tf.function(autograph=False)
    def exchange() -> tf.Tensor:
        return GrpcCarrier().exchange({0: call})[0].header

    with tf.device(CHIEF):
        fields = exchange().numpy()
        assert fields[Reply.STATUS] == decide.Status.OK
        assert fields[Reply.VERSION] == 20
        assert exchange().numpy()[Reply.STATUS] == decide.Status.DUPLICATE
    server.contents.free(server.contents.records)
