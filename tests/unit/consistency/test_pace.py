"""A pace follows what was measured."""

from __future__ import annotations

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tfps.consistency.logic import PlainLogic
from tfps.consistency.pace import NOT_KNOWN, pace_after
from tfps.consistency.server_ledger import GraphLogic

PACES_US = st.integers(1, 10**8)


@given(PACES_US, PACES_US)
def test_a_pace_moves_towards_what_was_measured(pace: int, measured: int) -> None:
    following = pace_after(pace, measured, logic=PlainLogic())
    assert min(pace, measured) <= following <= max(pace, measured)
    if abs(pace - measured) >= 4:
        assert following != pace


def test_one_slow_call_is_forgotten_and_a_slow_worker_is_not() -> None:
    logic = PlainLogic()
    assert pace_after(NOT_KNOWN, 500_000, logic=logic) == 500_000
    assert pace_after(5_000, 0, logic=logic) == 5_000
    pace = 500_000
    for _ in range(8):
        pace = pace_after(pace, 5_000, logic=logic)
    assert pace < 8_000
    for _ in range(8):
        pace = pace_after(pace, 25_000, logic=logic)
    assert pace > 22_000


@given(st.integers(0, 10**7), st.integers(-1, 10**7))
def test_servers_decide_alike(before: int, measured: int) -> None:
    asked = tf.constant(before, tf.int64), tf.constant(measured, tf.int64)
    assert int(pace_after(*asked, logic=GraphLogic())) == pace_after(
        before, measured, logic=PlainLogic()
    )
