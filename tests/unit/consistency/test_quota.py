"""Quotas follow speed: rounds have about the batches that were asked for, and end together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tfps.consistency.logic import PlainLogic
from tfps.consistency.quota import NOT_KNOWN, pace_after, quota_of
from tfps.consistency.server_ledger import GraphLogic
from tfps.consistency.vectors import ArrayVectors
from tfps.consistency.waiters import TensorVectors

PACES_US = st.integers(1, 10**8)


def _quotas(
    paces: Sequence[int], *, adaptive_batches: int, there: Sequence[int] | None = None
) -> list[int]:
    present = np.ones(len(paces), np.int64) if there is None else np.array(there, np.int64)
    return [
        int(
            quota_of(
                np.eye(len(paces), dtype=np.int64)[worker],
                paces=np.array(paces, np.int64),
                takes_part=present,
                adaptive_batches=adaptive_batches,
                vectors=ArrayVectors(),
            )
        )
        for worker in range(len(paces))
        if present[worker]
    ]


@pytest.mark.parametrize(
    ("paces", "adaptive_batches", "expected"),
    [
        ([50, 50, 50], 4, [4, 4, 4]),
        ([50, 50, 250], 4, [5, 5, 1]),
        ([10, 20], 6, [8, 4]),
        ([10, 1000], 4, [8, 1]),  # one at least
        ([7], 4, [4]),
    ],
)
def test_batches_are_shared_out_by_speed(
    paces: list[int], adaptive_batches: int, expected: list[int]
) -> None:
    assert _quotas(paces, adaptive_batches=adaptive_batches) == expected


def test_who_is_not_known_counts_as_one_like_the_others() -> None:
    assert _quotas([NOT_KNOWN] * 3, adaptive_batches=4) == [4, 4, 4]
    assert _quotas([10, NOT_KNOWN], adaptive_batches=4) == [4, 4]


def test_who_takes_no_part_gets_nothing_of_the_round() -> None:
    assert _quotas([10, 1, 20], adaptive_batches=6, there=[1, 0, 1]) == [8, 4]


@given(st.lists(PACES_US, min_size=1, max_size=8), st.integers(1, 64))
def test_a_round_has_about_the_batches_that_were_asked_for(
    paces: list[int], adaptive_batches: int
) -> None:
    quotas = _quotas(paces, adaptive_batches=adaptive_batches)
    wanted = adaptive_batches * len(paces)
    assert all(1 <= quota <= wanted for quota in quotas)
    # Each is rounded by at most a half, or raised to one.
    assert abs(sum(quotas) - wanted) <= len(paces)


@given(st.lists(PACES_US, min_size=2, max_size=8), st.integers(2, 64))
def test_workers_end_within_the_rounding_of_each_other(
    paces: list[int], adaptive_batches: int
) -> None:
    quotas = _quotas(paces, adaptive_batches=adaptive_batches)
    even_us = adaptive_batches * len(paces) / sum(1 / pace for pace in paces)
    for pace, quota in zip(paces, quotas, strict=True):
        assert quota * pace <= even_us + pace * 1.01  # half a batch, or the one at least
        assert quota == 1 or quota * pace >= even_us - 0.51 * pace


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


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.booleans()), min_size=1, max_size=5),
    st.integers(1, 32),
    st.data(),
)
def test_servers_decide_alike(
    workers: list[tuple[int, bool]], adaptive_batches: int, data: st.DataObject
) -> None:
    worker = data.draw(st.integers(0, len(workers) - 1))
    measured = data.draw(st.integers(-1, 10**7))
    one_hot = np.eye(len(workers), dtype=np.int64)[worker]
    paces = np.array([pace for pace, _ in workers], np.int64)
    present = np.array([there for _, there in workers], np.int64)
    plain = quota_of(
        one_hot,
        paces=paces,
        takes_part=present,
        adaptive_batches=adaptive_batches,
        vectors=ArrayVectors(),
    )
    tensors = quota_of(
        tf.constant(one_hot),
        paces=tf.constant(paces),
        takes_part=tf.constant(present),
        adaptive_batches=adaptive_batches,
        vectors=TensorVectors(),
    )
    assert int(tensors) == int(plain)
    before = int(paces[worker])
    asked = tf.constant(before, tf.int64), tf.constant(measured, tf.int64)
    assert int(pace_after(*asked, logic=GraphLogic())) == pace_after(
        before, measured, logic=PlainLogic()
    )
