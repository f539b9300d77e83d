"""Messages over `direct` between a worker and a server of this process arrive whole."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.transport.direct.certificates import made_tls, needs_openssl
from tests.unit.transport.direct.wire import encoded
from tests.unit.transport.served import HELLO, SECRET, ServedFunctions, served
from tfps.bridge.named_functions import register_named_function
from tfps.transport.carrier import ServerCall
from tfps.transport.direct import Plain
from tfps.transport.direct.handshake import authenticate_client
from tfps.transport.layout import Layout
from tfps.transport.message import REPLY_FIELDS, Kind, Request
from tfps.transport.packing import Segments, pack
from tfps.transport.service import Entry

LAYOUT = Layout.from_entries(
    [
        ("kernel", "float32", (30, 7)),
        ("nothing", "float32", (0, 5)),
        ("half", "bfloat16", (3,)),
        ("count", "int64", ()),
        ("flags", "bool", (2, 2)),
        ("large", "float32", (200_000,)),
    ]
)
ROW_BYTES = 1000
PUSH = Entry(Kind.PUSH, 0, LAYOUT.size_bytes, LAYOUT.size_bytes, row_bytes=ROW_BYTES)

_received_bytes: list[int] = []


def _note(payload: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _received_bytes.append(payload.size)
    return payload


def _echo(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
    (payload,) = tf.raw_ops.PyFunc(input=[payload], token="test_note", Tout=[tf.uint8])
    return [header[Request.TICKET :][:REPLY_FIELDS], ids, payload]


def _tensors() -> dict[str, tf.Tensor]:
    segments = [segment for block in LAYOUT.blocks for segment in block.segments]
    numbers = (np.arange(s.items).reshape(s.shape) % 251 for s in segments)
    pairs = zip(segments, numbers, strict=True)
    return {s.name: tf.cast(tf.constant(number), s.dtype) for s, number in pairs}


@pytest.fixture(scope="module", params=["plain", pytest.param("tls", marks=needs_openssl)])
def echo(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[ServedFunctions]:
    register_named_function("test_note", _note)
    is_tls = request.param == "tls"
    encryption = made_tls(tmp_path_factory.mktemp("tls") / "job") if is_tls else Plain()
    with served({PUSH: _echo}, encryption, tcp=is_tls) as server:
        yield server


def _call(echo: ServedFunctions, rows: bytes) -> ServerCall:
    follows = tf.constant(np.frombuffer(rows, np.uint8)) if rows else tf.zeros([0], tf.uint8)
    segments = Segments.pack(LAYOUT, _tensors())
    call: ServerCall = echo.call(
        Kind.PUSH, follows, [4, 5], ticket=1, row_bytes=ROW_BYTES, segments=segments
    )
    return call


@pytest.mark.parametrize("rows", [b"", bytes(range(100))], ids=["no rows", "rows"])
def test_segments_are_the_payload(echo: ServedFunctions, rows: bytes) -> None:
    """To two servers at once, of which one gets a payload that is joined."""

    @tf.function
    def exchange() -> tuple[Any, Any]:
        call = _call(echo, rows)
        replies = echo.carrier.exchange({0: call, 1: call.joined})
        return replies[0], replies[1]

    expected = pack(LAYOUT, _tensors()).numpy().tobytes() + rows
    for reply in exchange():
        assert reply[0].numpy()[0] == 1
        assert reply[1].numpy().tolist() == [4, 5]
        assert reply[2].numpy().tobytes() == expected


def test_who_dies_within_a_message_is_not_answered(echo: ServedFunctions) -> None:
    """Whatever has arrived of a push, its function does not run; other connections do not care."""
    call, threads_before = _call(echo, b""), echo.threads
    header, ids, payload = (tensor.numpy() for tensor in call.joined.tensors)
    whole = encoded((header, ids, payload))
    _received_bytes.clear()
    for size in (0, 30, 200, 1_000, 400_000, len(whole) - 1):
        _die_after(echo, whole[:size])
    while echo.threads - threads_before:
        time.sleep(0.01)
    assert _received_bytes == []
    echo.carrier.exchange({0: call})
    assert _received_bytes == [LAYOUT.size_bytes]


def _die_after(echo: ServedFunctions, part: bytes) -> None:
    """Connect to the server, send the first part of a message, and leave."""
    raw = socket.create_connection((echo.endpoint.host, echo.endpoint.port))
    with echo.encryption.connect(raw) as sock:
        authenticate_client(sock, HELLO, secret=SECRET, deadline_s=time.monotonic() + 60)
        sock.sendall(part)
