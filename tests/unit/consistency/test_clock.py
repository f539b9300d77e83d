"""The gate's rule, under workers that start, stop and vanish in any order."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import tensorflow as tf
from hypothesis import given, settings

from tests.scaled_examples import scaled_examples
from tests.unit.consistency.array_vectors import VECTORS
from tests.unit.consistency.gate_machine import GateMachine
from tfps.consistency.clock import Clocks, decide
from tfps.consistency.waiters import TensorVectors

TestGate = GateMachine.TestCase
TestGate.settings = settings(
    max_examples=scaled_examples(200), stateful_step_count=40, deadline=None
)

BITS = st.lists(st.integers(0, 1), min_size=3, max_size=3)
COUNTS = st.lists(st.integers(0, 5), min_size=3, max_size=3)


@settings(deadline=None, max_examples=scaled_examples(50))
@given(clocks=COUNTS, active=BITS, waiting=BITS, asking=BITS, bound=st.integers(0, 3))
def test_tensors_decide_as_arrays(
    clocks: list[int], active: list[int], waiting: list[int], asking: list[int], bound: int
) -> None:
    def results(convert: Any, vectors: Any) -> list[list[int]]:
        state = Clocks(convert(clocks), convert(active), convert(waiting))
        state = state.after_entry(convert(asking), vectors=vectors)
        state = state.after_step(convert(active), convert(4), vectors=vectors)
        found = decide(state, asking=convert(asking), bound_steps=bound, vectors=vectors)
        parts = (found.after.clocks, found.after.waiting, found.released, found.blocked, found.gap)
        return [np.asarray(part).tolist() for part in parts]

    plain = results(lambda values: np.array(values, np.int64), VECTORS)
    assert results(lambda values: tf.constant(values, tf.int64), TensorVectors()) == plain
