"""Hellos: what is encoded is decoded, and any other bytes are a HelloError."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import raises
from tfps.transport.direct.hello import HELLO_BYTES, Hello, HelloError

INT64 = st.integers(-(2**63), 2**63 - 1)
HELLOS = st.builds(Hello, INT64, INT64, INT64, st.text(), st.text())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
GOOD = asdict(Hello(job=1, worker=2, incarnation=3))


@given(hello=HELLOS)
def test_what_is_encoded_is_decoded(hello: Hello) -> None:
    assert Hello.from_bytes(hello.to_bytes()) == hello


@given(data=st.binary() | JSON.map(json.dumps).map(str.encode))
def test_any_bytes_are_a_hello_or_an_error(data: bytes) -> None:
    with raises(HelloError, "hello"):
        Hello.from_bytes(data)


@given(name=st.sampled_from(sorted(GOOD)), value=JSON)
def test_a_field_of_another_kind_is_refused(name: str, value: Any) -> None:
    data = json.dumps(GOOD | {name: value}).encode()
    if type(value) is type(GOOD[name]) and (isinstance(value, str) or -(2**63) <= value < 2**63):
        assert getattr(Hello.from_bytes(data), name) == value
    else:
        with raises(HelloError, f"hello: {name}"):
            Hello.from_bytes(data)


@pytest.mark.parametrize(
    "data",
    [b"[" * 100_000, b"1" * 10_000, b'"' + b"\\ud800" * 3 + b'"', b"\xff", b" " * HELLO_BYTES],
)
def test_what_breaks_a_decoder_is_an_error(data: bytes) -> None:
    with raises(HelloError, "hello"):
        Hello.from_bytes(data)


@pytest.mark.parametrize("change", [{"another": 1}, {"incarnation": None}])
def test_other_fields_are_refused(change: dict[str, Any]) -> None:
    values = {k: v for k, v in (GOOD | change).items() if v is not None}
    with raises(HelloError, "hello", remedy="'incarnation', 'job'"):
        Hello.from_bytes(json.dumps(values).encode())


def test_a_long_plan_is_refused_on_both_sides() -> None:
    Hello.from_bytes(Hello(1, 2, 3, plan="x" * (HELLO_BYTES - 200)).to_bytes())
    with raises(HelloError, "hello", remedy=f"at most {HELLO_BYTES}"):
        Hello(1, 2, 3, plan="x" * HELLO_BYTES).to_bytes()
    with raises(HelloError, "hello", remedy=f"at most {HELLO_BYTES}"):
        Hello.from_bytes(b" " * (HELLO_BYTES + 1))
