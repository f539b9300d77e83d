"""The papers' formulas, written once more in NumPy, and what holds where nothing is stale."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tfps.optimizers import formulas

ITEMS = 5
numbers = arrays("float32", ITEMS, elements=st.floats(-1e3, 1e3, width=32, allow_subnormal=False))
positive = arrays("float32", ITEMS, elements=st.floats(2.0**-10, 1e3, width=32))
finite = arrays("float32", ITEMS, elements=st.floats(-(2.0**127), 2.0**127, width=32))


@given(numbers, numbers, st.floats(0, 4))
def test_delay_compensation(gradient: Any, moved: Any, strength: float) -> None:
    gradient, moved = gradient.astype("float64"), moved.astype("float64")
    found = formulas.compensated(gradient, moved=moved, strength=strength)
    hessian = strength * gradient**2
    np.testing.assert_allclose(found, gradient + hessian * moved, rtol=1e-9, atol=1e-3)


@given(finite, positive)
def test_what_has_not_moved_is_left_alone(gradient: Any, step: Any) -> None:
    still = np.zeros(ITEMS, "float32")
    compensated = formulas.compensated(gradient, moved=still, strength=np.float32(0.04))
    np.testing.assert_array_equal(compensated, gradient)
    np.testing.assert_array_equal(gradient / formulas.gap(still, step=step), gradient)


@given(st.lists(numbers, min_size=1, max_size=6), st.floats(0.1, 0.99))
def test_running_means(values: list[Any], momentum: float) -> None:
    square: Any = np.zeros(ITEMS)
    for value in values:
        square = formulas.mean_square(square, value.astype("float64"), momentum=momentum)
    age = np.arange(len(values))[::-1, None]
    weights = (1 - momentum) * momentum**age
    expected = (weights * np.stack(values).astype("float64") ** 2).sum(0)
    np.testing.assert_allclose(square, expected, rtol=1e-9, atol=1e-12)
    size = formulas.step_size(
        square.astype("float32"), updates=float(len(values)), momentum=momentum, epsilon=1e-8
    )
    np.testing.assert_allclose(size, np.sqrt(expected / weights.sum()), rtol=1e-4, atol=1e-6)


def test_before_any_step_the_gap_can_be_computed() -> None:
    size = formulas.step_size(np.float32(0), updates=np.float32(0), momentum=0.999, epsilon=1e-8)
    assert float(size) == np.float32(1e-8)


@given(numbers, positive, positive)
def test_gap(moved: Any, step: Any, gradient: Any) -> None:
    found = formulas.gap(moved, step=step)
    np.testing.assert_allclose(found, 1 + np.abs(moved) / step, rtol=1e-6)
    assert (np.asarray(gradient / found) <= gradient).all()


@given(st.lists(numbers, min_size=1, max_size=6))
def test_revision_without_delay_is_adagrad(gradients: list[Any]) -> None:
    square: Any = np.full(ITEMS, 0.1, "float32")
    largest, expected = square, square
    for gradient in gradients:
        expected = expected + gradient * gradient
        found = formulas.revised(
            gradient,
            missed=np.zeros(ITEMS, "float32"),
            square=square,
            largest=largest,
            learning_rate=np.float32(0.5),
            epsilon=0.0,
        )
        square, largest = found.square, np.asarray(found.largest)
        np.testing.assert_array_equal(largest, expected)
        step = np.float32(0.5) * gradient / np.sqrt(expected)
        np.testing.assert_allclose(found.decrease, step, rtol=1e-6, atol=1e-30)


@given(st.lists(st.tuples(numbers, st.integers(0, 3)), min_size=1, max_size=8))
def test_revision_with_delay(steps: list[tuple[Any, int]]) -> None:
    """The pseudocode of the paper, with the sum of gradients that each one missed."""
    alpha, total = 0.5, np.zeros(ITEMS)
    z, largest, weight = np.ones(ITEMS), np.ones(ITEMS), np.zeros(ITEMS)
    square: Any = z
    found_largest: Any = z
    found: Any = np.zeros(ITEMS)
    totals = [total]
    for gradient, delay in [(g.astype("float64"), d) for g, d in steps]:
        missed = total - totals[max(0, len(totals) - 1 - delay)]
        eta_old = alpha / np.sqrt(largest)
        z = z + gradient**2 + 2 * gradient * missed
        largest = np.maximum(z, largest)
        eta = alpha / np.sqrt(largest)
        weight = weight - eta * gradient + (eta_old - eta) * missed
        total = total + gradient
        totals.append(total)
        revised = formulas.revised(
            gradient,
            missed=missed,
            square=square,
            largest=found_largest,
            learning_rate=alpha,
            epsilon=0.0,
        )
        square, found_largest = revised.square, np.asarray(revised.largest)
        found = found - np.asarray(revised.decrease)
    np.testing.assert_allclose(found, weight, rtol=1e-6, atol=1e-6)
