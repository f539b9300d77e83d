"""A server looks at every request before it runs anything, and finds the function at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.messages import raises
from tests.unit.transport.served import Served, served
from tfps.errors import ProtocolError
from tfps.transport.data_server import _ServedConnection
from tfps.transport.direct import Connection, FrameLimits, Plain
from tfps.transport.direct.connection import ReceivedMessage
from tfps.transport.links import Links, Peers
from tfps.transport.message import PROTOCOL, REPLY_FIELDS, REQUEST_FIELDS, Kind, Request
from tfps.transport.service import Entry, Service

SERVICE = Service(
    7,
    9,
    2,
    (Entry(Kind.JOIN, 0, 0, 64), Entry(Kind.PUSH, 0, 64, 64), Entry(Kind.PUSH, 1, 64, 0, 8)),
)
NO_IDS, NO_BYTES = np.empty(0, np.int64), np.empty(0, np.uint8)


def _header(**fields: int) -> list[int]:
    said = {"protocol": PROTOCOL, "job": 7, "plan": 9, "kind": Kind.PUSH, **fields}
    return [said.get(field.name.lower(), 0) for field in Request]


@pytest.mark.parametrize(
    ("position", "size", "fields"),
    [(0, 0, {"kind": Kind.JOIN}), (1, 64, {}), (2, 64, {"call": 1}), (2, 72, {"call": 1})],
)
def test_requests_find_their_function(position: int, size: int, fields: dict[str, int]) -> None:
    assert SERVICE.position(_header(**fields), payload_bytes=size) == position


@pytest.mark.parametrize(
    ("size", "fields", "key", "received", "expected"),
    [
        (64, {"protocol": 99}, "protocol", 99, PROTOCOL),
        (64, {"job": 8}, "job", 8, 7),
        (64, {"plan": 8}, "plan", 8, 9),
        (64, {"worker": 2}, "worker", 2, "0 to 1"),
        (64, {"worker": -1}, "worker", -1, "0 to 1"),
        (64, {"call": 2}, "kind, call", "1, 2", "one of [('JOIN', 0), ('PUSH', 0)"),
        (63, {}, "payload", 63, 64),
        (65, {}, "payload", 65, 64),
        (73, {"call": 1}, "payload", 73, "64 and rows of at most 8"),
    ],
)
def test_any_other_is_refused(
    size: int, fields: dict[str, int], key: str, received: object, expected: object
) -> None:
    with raises(ProtocolError, key, received=received, remedy=f"expected {expected}"):
        SERVICE.position(_header(**fields), payload_bytes=size)


def test_a_header_of_another_length_is_refused() -> None:
    with raises(ProtocolError, "header", received=3, remedy=f"expected {REQUEST_FIELDS}"):
        SERVICE.position([1, 2, 3], payload_bytes=0)


class Recorded(Connection):
    """A connection that returns one message for every call, and notes the limits."""

    def __init__(self, message: ReceivedMessage) -> None:
        self.message, self.peer = message, "a peer"
        self.limits: list[FrameLimits] = []

    def send(self, *_: Any) -> None:
        """Drop the message."""

    def receive(self, limits: FrameLimits) -> ReceivedMessage:
        self.limits.append(limits)
        return self.message

    def has_ended(self) -> bool:
        return False


def test_what_a_server_expects_is_known_before_requests_come() -> None:
    with served({Entry(Kind.PUSH, 0, 64, 64): lambda *request: list(request)}, Plain()) as server:
        connection = Recorded(_push(server))
        _serve(server, connection)
    first, second = connection.limits
    assert first is second
    assert first == FrameLimits(REQUEST_FIELDS, first.max_ids, 64)


def _push(server: Served) -> ReceivedMessage:
    header = _header(job=server.service.job_id, plan=server.service.plan_id)
    return ReceivedMessage(np.array(header), NO_IDS, np.zeros(64, np.uint8))


def _serve(server: Served, connection: Connection) -> None:
    """Two requests, each with the reply to the one before."""
    server.server._connections[99] = _ServedConnection(connection, server.service)
    reply = np.zeros(REPLY_FIELDS, np.int64)
    for _ in range(2):
        position, header, _, payload = server.server._reply_and_receive(
            np.array(99), reply, NO_IDS, NO_BYTES
        )
        assert (position, header[Request.KIND], payload.size) == (0, Kind.PUSH, 64)
    del server.server._connections[99]


def test_what_a_worker_expects_is_known_before_replies_come() -> None:
    connection = Recorded(
        ReceivedMessage(np.zeros(REPLY_FIELDS, np.int64), NO_IDS, np.zeros(64, np.uint8))
    )
    links, peers = Links(encryption=Plain()), Peers({}, "").to_json().encode()
    links._idle[7, 0, 9] = [connection]
    for _ in range(2):
        request = (np.array(_header()), NO_IDS, np.zeros(64, np.uint8))
        sizes = np.array([[64, 8, 3]], np.int64)
        reply = links.exchange(peers, np.array([0]), sizes, *request)
        assert reply[2].size == 64
    first, second = connection.limits
    assert first is second
    assert first == FrameLimits(REPLY_FIELDS, first.max_ids, 72)
