"""A server looks at every request before it runs anything, and finds the function at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from tests.messages import check_message, raises
from tests.unit.transport.served import SECRET, ServedFunctions, served
from tfps.errors import ProtocolError
from tfps.transport.direct import ConnectionLost, FrameLimits, Plain
from tfps.transport.links import Peers
from tfps.transport.message import PROTOCOL, REPLY_FIELDS, REQUEST_FIELDS, Kind, Request
from tfps.transport.service import Entry, Service

SERVICE = Service(
    7,
    9,
    2,
    (Entry(Kind.JOIN, 0, 0, 64), Entry(Kind.PUSH, 0, 64, 64), Entry(Kind.PUSH, 1, 64, 0, 8)),
)


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


@pytest.fixture
def server() -> Iterator[ServedFunctions]:
    """A server of pushes of 64 bytes, with replies of the same size."""

    def echo(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        return [header[:REPLY_FIELDS], ids, payload]

    with served({Entry(Kind.PUSH, 0, 64, 64): echo}, Plain()) as server:
        yield server


def _push(server: ServedFunctions, payload_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    header = _header(job=server.service.job_id, plan=server.service.plan_id)
    return np.array(header), np.empty(0, np.int64), np.zeros(payload_bytes, np.uint8)


def test_a_server_receives_no_more_than_its_largest_request(
    server: ServedFunctions, caplog: pytest.LogCaptureFixture
) -> None:
    connection = server.connect()
    connection.send(*_push(server, 65))
    with pytest.raises(ConnectionLost):
        connection.receive(FrameLimits(REPLY_FIELDS, 0, 64))
    for thread in server.threads:
        thread.join()
    check_message(caplog.text, "payload", received="65 bytes", remedy="expected at most 64\n")


def test_a_worker_receives_no_more_than_the_largest_reply(server: ServedFunctions) -> None:
    peers = Peers({0: server.endpoint}, SECRET.hex()).to_json().encode()
    request, number = _push(server, 64), np.array([0])
    for rows_bytes in (8, 0):
        sizes = np.array([[64, rows_bytes, 3]], np.int64)
        assert server.links.exchange(peers, number, sizes, *request)[2].size == 64
    with raises(ConnectionError, "payload", received="64 bytes", remedy="at most 63"):
        server.links.exchange(peers, number, np.array([[55, 8, 3]], np.int64), *request)
