"""Endpoints: told to others as JSON, and anything else is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import raises
from tfps.errors import ProtocolError
from tfps.transport.direct.endpoint import Endpoint, this_machine

ENDPOINTS = st.builds(Endpoint, st.text(), st.integers(1, 65535), st.text(), st.text())
HERE = Endpoint("localhost", 7000, "tfps-a", this_machine())


@given(endpoint=ENDPOINTS)
def test_what_is_told_is_understood(endpoint: Endpoint) -> None:
    assert Endpoint.from_json(endpoint.to_json()) == endpoint


@given(text=st.text())
def test_any_text_is_refused(text: str) -> None:
    with raises(ProtocolError, "endpoint"):
        Endpoint.from_json(text)


@pytest.mark.parametrize(
    "change",
    [{"port": 0}, {"port": 65536}, {"port": "7000"}, {"port": True}, {"host": None}, {"more": 1}],
)
def test_other_fields_are_refused(change: dict[str, object]) -> None:
    with raises(ProtocolError, "endpoint"):
        Endpoint.from_json(json.dumps(json.loads(HERE.to_json()) | change))


def test_brackets_of_an_endpoint_that_never_end() -> None:
    with raises(ProtocolError, "endpoint"):
        Endpoint.from_json("[" * 100_000)


@pytest.mark.parametrize(
    ("host", "address"),
    [("10.0.0.1", "10.0.0.1:7000"), ("::1", "[::1]:7000"), ("ps-0.svc", "ps-0.svc:7000")],
)
def test_addresses_are_readable(host: str, address: str) -> None:
    assert replace(HERE, host=host).address == address


def test_a_unix_socket_counts_only_on_this_machine() -> None:
    assert HERE.is_local
    assert not replace(HERE, machine="another").is_local
    assert not replace(HERE, unix_name="").is_local
    assert not Endpoint("localhost", 7000, "tfps-a", "").is_local
