"""A worker's assignments to a variable that has moved on meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfps.runtime.message.moved_state import MovedState, add_change

INF = np.inf


@pytest.mark.parametrize(
    ("old", "begin", "new", "workers", "expected"),
    [
        (0.1, 0.1, 0.3, 1, 0.3),  # bit for bit: 0.1 + (0.3 - 0.1) is another number
        (5.0, 1.0, 3.0, 1, 7.0),
        (1.0, 1.0, 3.0, 4, 1.5),
        (INF, INF, 3.0, 2, 3.0),
        (2.0, INF, 3.0, 2, 3.0),
        (INF, 1.0, 3.0, 2, 3.0),
        (2.0, 1.0, -INF, 2, -INF),
        (INF, INF, INF, 2, INF),
        (2.0, INF, INF, 2, 2.0),  # unchanged: what others assigned stays
        (INF, 3.0, 3.0, 2, INF),
    ],
)
def test_add_change(old: float, begin: float, new: float, workers: int, expected: float) -> None:
    found = add_change(
        tf.constant(old), new=tf.constant(new), begin=tf.constant(begin), workers=workers
    )
    np.testing.assert_array_equal(found, np.float32(expected))


@pytest.mark.parametrize(
    ("old", "begin", "new", "kept", "expected"),
    [
        (0.1, 0.1, 0.3, 0.5, 0.3),
        (5.0, 1.0, 3.0, 0.5, 5.0),
        (5.0, 1.0, 3.0, 0.0, 3.0),
        (INF, INF, INF, 0.5, INF),
        (2.0, INF, INF, 0.5, INF),
        (INF, INF, 3.0, 0.0, 3.0),
    ],
)
def test_moved_state(old: float, begin: float, new: float, kept: float, expected: float) -> None:
    steps = MovedState(tf.constant(new), tf.constant(begin), tf.constant(kept))
    np.testing.assert_array_equal(steps.apply_to(tf.constant(old)), np.float32(expected))
