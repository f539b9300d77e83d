"""Messages between readers and servers arrive unchanged, or are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.messages import raises
from tfps.errors import ProtocolError
from tfps.placement.slab import ALIGNMENT_BYTES
from tfps.recovery.reading.read_message import Array, ReadReply, ReadRequest, split_payload

dtypes = st.sampled_from(["float32", "int64", "bool", "float16", "uint8"])
arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


def sent(reply: ReadReply) -> tuple[list[int], Array]:
    """The header and the payload, as a connection would write them."""
    text, values = reply.to_parts()
    payload = b""
    for value in values:
        payload += value.tobytes() + bytes(
            -value.nbytes % ALIGNMENT_BYTES if value.nbytes else ALIGNMENT_BYTES
        )
    return [len(text)], np.frombuffer(payload + text, np.uint8)


@given(st.lists(st.text()))
def test_requests_arrive(names: list[str]) -> None:
    request = ReadRequest(resources=tuple(names))
    assert ReadRequest.from_text(request.to_text()) == request


@given(st.text(), st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(arrays), st.text())
def test_answers_arrive(record: str, cells: list[int], values: list[Array], problem: str) -> None:
    reply = ReadReply(record=record, cells=tuple(cells), values=tuple(values), problem=problem)
    heard = ReadReply.from_parts(*split_payload(*sent(reply)))
    assert (heard.record, heard.cells, heard.problem) == (record, tuple(cells), problem)
    assert len(heard.values) == len(values)
    for ours, theirs in zip(values, heard.values, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("text", [b"{", b"[1]", b'{"a": 1}', b"null", b"\xff"])
def test_other_bytes_are_no_request(text: bytes) -> None:
    with raises(ProtocolError, "received", remedy="same version of tfps"):
        ReadRequest.from_text(text)


@given(st.integers(1, 40))
def test_arrays_that_are_cut_off_are_no_answer(missing: int) -> None:
    value = np.arange(10, dtype=np.float32)
    text, _ = ReadReply(record="r", values=(value,)).to_parts()
    with raises(ProtocolError, "reply: received", remedy="same version of tfps"):
        ReadReply.from_parts(text, np.zeros(40 - missing, np.uint8))


def test_an_answer_of_another_dtype_or_without_fields() -> None:
    fields = {"record": "", "cells": [], "values": [["float1", [2]]], "problem": ""}
    for text in (json.dumps(fields).encode(), b"{}"):
        with raises(ProtocolError, "reply: received", remedy="same version of tfps"):
            ReadReply.from_parts(text, np.zeros(64, np.uint8))


@pytest.mark.parametrize("size_bytes", [-1, 9])
def test_a_text_longer_than_the_payload(size_bytes: int) -> None:
    with raises(ProtocolError, "text", received=size_bytes, remedy="at most 8"):
        split_payload([size_bytes], np.zeros(8, np.uint8))
