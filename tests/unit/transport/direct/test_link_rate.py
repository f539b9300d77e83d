"""Messages over a link of a given rate follow each other."""

from __future__ import annotations

import socket

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tfps.transport.direct import RATE_VARIABLE, Connection
from tfps.transport.direct.link_rate import TokenBucket, link_rate_of_this_process

SENT = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10_000)), max_size=20)


@given(SENT)
def test_no_more_arrives_than_the_link_carries(sent: list[tuple[float, int]]) -> None:
    bucket, now_s, total, arrived_s = TokenBucket(bytes_per_s=1000.0), 0.0, 0, 0.0
    for pause_s, size in sent:
        now_s += pause_s
        before_s, arrived_s = arrived_s, now_s + bucket.delay_s(size, now_s=now_s)
        total += size
        assert arrived_s >= max(now_s, before_s)
        assert total <= 1000.0 * arrived_s + 1e-6


def test_a_connection_waits_for_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setenv(RATE_VARIABLE, "0.001")
    monkeypatch.setattr("tfps.transport.direct.link_rate.time.sleep", waited.append)
    link_rate_of_this_process.cache_clear()
    try:
        left, right = (Connection(sock, peer="other") for sock in socket.socketpair())
        left.send(np.zeros(2, np.int64), np.zeros(0, np.int64), np.zeros(109, np.uint8))
        (seconds,) = waited
        assert seconds == pytest.approx(left.sent_bytes / 125, rel=0.01)
        left.close()
        right.close()
    finally:
        link_rate_of_this_process.cache_clear()


def test_without_a_rate_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RATE_VARIABLE, raising=False)
    link_rate_of_this_process.cache_clear()
    assert link_rate_of_this_process() is None
