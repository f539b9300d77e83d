"""The task at a lost server's address may be another one than before."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.messages import check_message
from tfps.runtime.coordinator.control_plane import NoSuchFunction
from tfps.runtime.coordinator.data_plane import DataPlane
from tfps.transport.direct import SECRET_VARIABLE, fingerprint

JOB = 7


@pytest.fixture
def plane() -> DataPlane:
    plane = object.__new__(DataPlane)
    endpoint: Any = None
    plane.job_id, plane.endpoints = JOB, {0: endpoint}
    return plane


def _server(reply: Callable[[], bytes], *, index: int = 0) -> Any:
    closed: list[bool] = []
    channel = SimpleNamespace(ask=lambda *_: reply(), close=lambda: closed.append(True))
    return SimpleNamespace(
        index=index, address="host:1", open_channel=lambda: channel, closed=closed, channel=None
    )


def _plain() -> bytes:
    raise NoSuchFunction


def test_a_process_with_the_secret_fits(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "0123456789abcdef")
    server = _server(lambda: fingerprint(b"0123456789abcdef", job=JOB))
    assert plane.find_incompatibility(server) == ""
    assert server.closed == [True]


def test_another_secret_is_said(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "0123456789abcdef")
    server = _server(lambda: fingerprint(b"another secret!!", job=JOB))
    check_message(
        plane.find_incompatibility(server),
        f"{SECRET_VARIABLE}: ps 0",
        received="another secret",
        remedy=f"Give the same {SECRET_VARIABLE}",
    )
    assert server.closed == [True]


def test_a_plain_server_is_said(plane: DataPlane) -> None:
    server = _server(_plain)
    check_message(
        plane.find_incompatibility(server),
        "ps 0 at host:1: ",
        received="tf.distribute.Server",
        remedy="tfps serve",
    )
    assert server.closed == [True]


def test_a_server_that_tensorflow_reaches_may_be_any(plane: DataPlane) -> None:
    assert plane.find_incompatibility(_server(_plain, index=1)) == ""
