"""Prefixes: what is packed is parsed, and any other bytes are a FrameError."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import raises
from tfps.errors import ProtocolError
from tfps.transport.direct.frame import MAGIC, PREFIX, Frame, FrameError, FrameLimits
from tfps.transport.message import PROTOCOL

LIMITS = FrameLimits(header_fields=5, max_ids=1000, max_payload_bytes=2**40)
FRAMES = st.builds(
    Frame, st.integers(0, 2**16 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)
)


@given(frame=FRAMES)
def test_what_is_packed_is_parsed(frame: Frame) -> None:
    assert Frame.parse(frame.pack(), FrameLimits(*frame)) == frame


@given(ids=st.integers(0, 2000), payload_bytes=st.integers(0, 2**41), fields=st.integers(3, 7))
def test_limits_hold(ids: int, payload_bytes: int, fields: int) -> None:
    frame = Frame(fields, ids, payload_bytes)
    if fields == 5 and ids <= 1000 and payload_bytes <= 2**40:
        assert Frame.parse(frame.pack(), LIMITS) == frame
    else:
        with raises(FrameError, "expected"):
            Frame.parse(frame.pack(), LIMITS)


@given(data=st.binary(max_size=40) | st.binary(min_size=PREFIX.size, max_size=PREFIX.size))
def test_any_bytes_are_a_frame_or_an_error(data: bytes) -> None:
    try:
        frame = Frame.parse(data, LIMITS)
    except FrameError:
        return
    assert frame.pack() == data


@given(
    frame=st.builds(Frame, st.just(5), st.integers(0, 1000), st.integers(0, 2**40)),
    place=st.integers(0, PREFIX.size - 1),
    value=st.integers(0, 255),
)
def test_a_changed_byte_is_noticed_or_is_another_size(frame: Frame, place: int, value: int) -> None:
    data = bytearray(frame.pack())
    data[place] = value
    try:
        found = Frame.parse(data, LIMITS)
    except FrameError:
        return
    assert found.pack() == data
    assert found.header_fields == 5
    assert found.ids <= 1000
    assert found.payload_bytes <= 2**40


@pytest.mark.parametrize(
    ("data", "key", "received", "remedy"),
    [
        (b"", "prefix", "0 bytes", f"expected {PREFIX.size}"),
        (b"GET / HTTP/1.1\r\nHost: a.b", "magic", b"GET ", "tasks of tfps"),
        (struct.pack("<4sHHQQ", MAGIC, PROTOCOL + 1, 5, 0, 0), "protocol", PROTOCOL + 1, "version"),
        (Frame(4, 0, 0).pack(), "header", "4 fields", "expected 5"),
        (Frame(5, 1001, 0).pack(), "ids", 1001, "at most 1000"),
        (Frame(5, 0, 2**40 + 1).pack(), "payload", 2**40 + 1, f"at most {2**40}"),
    ],
)
def test_errors_name_what_was_received_and_expected(
    data: bytes, key: str, received: object, remedy: str
) -> None:
    with raises(FrameError, key, received=received, remedy=remedy) as caught:
        Frame.parse(data[: PREFIX.size], LIMITS)
    assert isinstance(caught.value, ProtocolError)
