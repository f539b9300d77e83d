"""The chief's requests to servers of one process, each of which a test can send again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tfps.testing.in_process import DeviceChannel


class SentRequest(NamedTuple):
    """A request that was sent.

    Attributes:
        values: its arguments.
        send_again: sends it once more, as TensorFlow may if a reply is late.
    """

    values: tuple[Any, ...]
    send_again: Callable[[], Any]


def note_requests(monkeypatch: pytest.MonkeyPatch) -> list[SentRequest]:
    """Return a list that grows by the requests over channels that are made from now on."""
    sent: list[SentRequest] = []
    make_function = DeviceChannel.make_function

    def make_noting_function(channel: DeviceChannel, trace: Any, **options: Any) -> Any:
        call = make_function(channel, trace, **options)

        def send(*values: Any, **limits: float) -> Any:
            sent.append(SentRequest(values, lambda: call(*values, **limits)))
            return call(*values, **limits)

        return send

    monkeypatch.setattr(DeviceChannel, "make_function", make_noting_function)
    return sent
