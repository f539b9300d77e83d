"""The constraints that may act on some rows of a variable."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tfps.optimizers.by_shard import acts_by_rows


class Own(keras.constraints.Constraint):
    def __call__(self, w: Any) -> Any:
        return w / keras.ops.norm(w)


class OwnByRows(Own):
    tfps_by_rows = True


CONSTRAINTS = [
    keras.constraints.NonNeg(),
    keras.constraints.MaxNorm(0.5, axis=0),
    keras.constraints.MaxNorm(0.5, axis=1),
    keras.constraints.MaxNorm(0.5, axis=-2),
    keras.constraints.UnitNorm(axis=[0, 1]),
    keras.constraints.UnitNorm(axis=-1),
    keras.constraints.MinMaxNorm(0.5, 0.6, axis=1),
    keras.constraints.MinMaxNorm(0.5, 0.6, axis=0),
    Own(),
]


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_it_says_what_happens_to_rows(constraint: Any) -> None:
    value = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    halves = np.concatenate([constraint(value[:3]), constraint(value[3:])])
    exact = np.allclose(halves, constraint(value), atol=1e-6)
    assert acts_by_rows(constraint, rank=2) == exact


def test_none_and_ones_own_that_says_so() -> None:
    assert acts_by_rows(None, rank=2)
    assert acts_by_rows(OwnByRows(), rank=2)
