"""Threads that wait for a lost server when a call to it fails, and those that must not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tfps.runtime.coordinator.control_plane import (
    ControlPlane,
    bringing_servers_back,
    fail_lost_servers_at_once,
)


class NoServer:
    """A session with a task that is gone."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """It connects to no task."""

    def run(self, *_: Any, **__: Any) -> Any:
        raise tf.errors.UnavailableError(None, None, "connection refused")


@pytest.mark.parametrize(
    ("thread", "waits"),
    [
        (contextlib.nullcontext, True),
        (bringing_servers_back, False),
        (fail_lost_servers_at_once, False),
    ],
    ids=["any thread", "the thread that fills it", "a thread that holds what others need"],
)
def test_who_waits_for_a_lost_server(
    monkeypatch: pytest.MonkeyPatch, thread: Callable[[], Any], waits: bool
) -> None:
    """Its return waits for the others."""
    monkeypatch.setattr(tf.compat.v1, "Session", NoServer)
    channel = ControlPlane(address=lambda: "127.0.0.1:1", device="/device:CPU:0")
    call = channel.make_function(lambda: [tf.constant(1)], arguments=0)
    asked = list[str]()

    def wait_for_return() -> bool:
        asked.append("once")
        return False

    channel.wait_for_return = wait_for_return
    with thread(), pytest.raises(tf.errors.UnavailableError, match="connection refused"):
        call()
    assert asked == ["once"] * waits


def test_a_server_may_be_back_before_anybody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was lost when the call began, and is back before the call asks for its return."""

    class ReplyingSession:
        def __init__(self, *_: Any, **__: Any) -> None:
            """It connects to no task."""

        def run(self, *_: Any, **__: Any) -> Any:
            return [1]

    monkeypatch.setattr(tf.compat.v1, "Session", ReplyingSession)
    channel = ControlPlane(address=lambda: "127.0.0.1:1", device="/device:CPU:0")
    call = channel.make_function(lambda: [tf.constant(1)], arguments=0)

    def wait_for_return() -> bool:
        channel.lost = None
        return False

    channel.lost, channel.wait_for_return = "it is gone", wait_for_return
    assert call() == [1]
