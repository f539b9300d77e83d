"""The papers' formulas, written once more in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tfps.optimizers import formulas

ITEMS = 5
numbers = arrays("float32", ITEMS, elements=st.floats(-1e3, 1e3, width=32, allow_subnormal=False))


@given(st.lists(numbers, min_size=1, max_size=6), st.floats(0.1, 0.99))
def test_running_means(values: list[Any], momentum: float) -> None:
    square: Any = np.zeros(ITEMS)
    for value in values:
        square = formulas.update_mean_square(square, value.astype("float64"), momentum=momentum)
    age = np.arange(len(values))[::-1, None]
    weights = (1 - momentum) * momentum**age
    expected = (weights * np.stack(values).astype("float64") ** 2).sum(0)
    np.testing.assert_allclose(square, expected, rtol=1e-9, atol=1e-12)
    size = formulas.compute_step_size(
        square.astype("float32"), updates=float(len(values)), momentum=momentum, epsilon=1e-8
    )
    np.testing.assert_allclose(size, np.sqrt(expected / weights.sum()), rtol=1e-4, atol=1e-6)


def test_before_any_step_there_is_a_size() -> None:
    size = formulas.compute_step_size(
        np.float32(0), updates=np.float32(0), momentum=0.999, epsilon=1e-8
    )
    assert float(size) == np.float32(1e-8)
