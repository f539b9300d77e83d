"""How far beyond its bound a worker is let go, and that this never breaks what bounds promise."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis.stateful import initialize, rule

from tests.unit.consistency.gate_machine import VECTORS, GateMachine, one
from tfps.consistency import clock
from tfps.consistency.clock import Clocks, Decision
from tfps.consistency.extra_steps import Limits, Pace, decide
from tfps.consistency.waiters import TensorVectors


class DynamicGateMachine(GateMachine):
    """Workers of a server whose gate looks at when they push."""

    @initialize(extra=st.integers(0, 4))
    def start_clock(self, extra: int) -> None:
        self.extra, self.now = extra, 1
        self.pace: Pace | None = None

    @rule(microseconds=st.integers(0, 50))
    def time_passes(self, microseconds: int) -> None:
        self.now += microseconds

    @property
    def largest_gap(self) -> int:
        return self.bound + self.extra

    def _known(self) -> Pace:
        nothing = np.zeros(self.workers, np.int64)
        return self.pace or Pace(nothing, nothing, nothing)

    def note_entry(self, worker: np.ndarray) -> None:
        self.pace = self._known().entered(worker)

    def note_push(self, worker: np.ndarray) -> None:
        self.pace = self._known().ticked(worker, self.now, vectors=VECTORS)

    def decision_for(self, state: Clocks, asking: np.ndarray) -> Decision:
        limits = Limits(self.bound, self.extra)
        decision, self.pace = decide(
            state, self._known(), asking=asking, limits=limits, vectors=VECTORS
        )
        if self.extra == 0:
            plain = clock.decide(state, asking=asking, bound_steps=self.bound, vectors=VECTORS)
            for part in ("released", "blocked", "gap"):
                assert np.array_equal(getattr(decision, part), getattr(plain, part))
        return decision


TestDynamicGate = DynamicGateMachine.TestCase
TestDynamicGate.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def vector(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def extra_steps(
    gap: int, *, own: tuple[int, int], slowest: tuple[int, int], limits: Limits
) -> tuple[int, bool]:
    """How many steps worker 1 is let do, and whether it waits; each pushed at these two times."""
    state = Clocks(vector(0, gap), vector(1, 1), vector(0, 0))
    pace = Pace(vector(slowest[1], own[1]), vector(slowest[0], own[0]), vector(0, 0))
    decision, after = decide(state, pace, asking=one(1, 2), limits=limits, vectors=VECTORS)
    return max(0, int(after.granted[1]) - gap), bool(decision.blocked[1])


LIMITS = Limits(bound_steps=1, extra_steps=4)


@pytest.mark.parametrize(
    ("gap", "own", "slowest", "expected"),
    [
        # Its pushes at 100, 120, ... come nearest to the slowest's at 150 after 2 (or 3) steps.
        (2, (80, 100), (50, 100), (2, False)),
        (2, (70, 100), (60, 145), (4, False)),  # 100, ..., 220 and 230
        (4, (70, 100), (60, 145), (2, False)),  # the same, with room for two
        (2, (60, 100), (20, 62), (0, True)),  # at 104 already: it waits
        (2, (80, 100), (0, 60), (0, True)),  # of the slowest one push is known
        (2, (0, 100), (10, 60), (0, True)),  # of itself
        (1, (80, 100), (50, 100), (0, False)),  # within the bound nobody is asked
        (5, (60, 100), (40, 90), (1, False)),  # the last that is allowed: 140
        (6, (60, 100), (40, 90), (0, True)),
        (2, (80, 100), (70, 70), (0, True)),  # two pushes at once say nothing of the next
    ],
)
def test_it_stops_where_the_slowest_pushes(
    gap: int, own: tuple[int, int], slowest: tuple[int, int], expected: tuple[int, bool]
) -> None:
    assert extra_steps(gap, own=own, slowest=slowest, limits=LIMITS) == expected


TIMES = st.integers(1, 1000)
STEPS = st.integers(1, 400)


@given(
    pushes=st.tuples(TIMES, TIMES),
    intervals=st.tuples(STEPS, STEPS),
    limits=st.builds(Limits, st.integers(0, 3), st.integers(0, 8)),
    over=st.integers(1, 12),
)
def test_the_steps_are_those_that_make_the_least_difference(
    pushes: tuple[int, int], intervals: tuple[int, int], limits: Limits, over: int
) -> None:
    gap, (own, slowest) = limits.bound_steps + over, zip(pushes, intervals, strict=True)
    found, waits = extra_steps(
        gap, own=(own[0], sum(own)), slowest=(slowest[0], sum(slowest)), limits=limits
    )
    difference = {
        r: min(
            abs(own[0] + own[1] * (1 + r) - slowest[0] - slowest[1] * (2 + k))
            for k in range(limits.extra_steps + 1)
        )
        for r in range(max(0, limits.largest_gap_steps + 1 - gap) + 1)
    }
    assert found == min(difference, key=lambda r: (difference[r], r))
    assert waits == (found == 0)


def test_only_the_worker_that_is_ahead_of_all_is_let_go() -> None:
    state = Clocks(vector(0, 2, 3), vector(1, 1, 1), vector(0, 0, 0))
    pace = Pace(vector(100, 100, 100), vector(50, 80, 80), vector(0, 0, 0))
    for slot, waits in ((1, True), (2, False)):
        decision, _ = decide(state, pace, asking=one(slot, 3), limits=LIMITS, vectors=VECTORS)
        assert decision.blocked[slot] == waits


def test_of_several_slowest_the_last_to_push_counts() -> None:
    state = Clocks(vector(0, 0, 2), vector(1, 1, 1), vector(0, 0, 0))
    pace = Pace(vector(90, 100, 100), vector(80, 60, 80), vector(0, 0, 0))
    _, after = decide(state, pace, asking=one(2, 3), limits=LIMITS, vectors=VECTORS)
    assert after.granted[2] == 2 + 2  # until 140, not 100
    gone = Clocks(state.clocks, vector(1, 0, 1), state.waiting)
    _, after = decide(gone, pace, asking=one(2, 3), limits=LIMITS, vectors=VECTORS)
    assert after.granted[2] == 2  # it waits for what comes at 100


def test_steps_that_were_granted_are_done_without_asking() -> None:
    state = Clocks(vector(0, 2), vector(1, 1), vector(0, 0))
    pace = Pace(vector(100, 100), vector(50, 80), vector(0, 0))
    for now in (100, 101, 102):  # faster than was predicted
        decision, pace = decide(state, pace, asking=one(1, 2), limits=LIMITS, vectors=VECTORS)
        assert pace.granted[1] == 4
        assert decision.blocked[1] == (now == 102)
        state = state.ticked(one(1, 2), state.clocks[1] + 1, vectors=VECTORS)
        # Pushes at one and the same time: where it asks again, no further step helps.
        pace = pace.ticked(one(1, 2), 150, vectors=VECTORS)


BITS = st.lists(st.integers(0, 1), min_size=3, max_size=3)
COUNTS = st.lists(st.integers(0, 5), min_size=3, max_size=3)
STAMPS = st.lists(st.integers(0, 100), min_size=3, max_size=3)


@settings(deadline=None, max_examples=100)
@given(
    clocks=COUNTS,
    bits=st.tuples(BITS, BITS, st.sampled_from([[1, 0, 0], [0, 0, 1], [0, 0, 0]])),
    stamps=st.tuples(STAMPS, STAMPS, COUNTS),
    limits=st.builds(Limits, st.integers(0, 2), st.integers(0, 4)),
)
def test_tensors_decide_as_arrays(
    clocks: list[int], bits: tuple[list[int], ...], stamps: tuple[list[int], ...], limits: Limits
) -> None:
    def answers(convert: Any, vectors: Any) -> list[list[int]]:
        active, waiting, asking = map(convert, bits)
        state, pace = Clocks(convert(clocks), active, waiting), Pace(*map(convert, stamps))
        pace = pace.entered(waiting).ticked(asking, convert(120), vectors=vectors)
        decision, pace = decide(state, pace, asking=asking, limits=limits, vectors=vectors)
        after = decision.after
        parts = (after.waiting, decision.released, decision.blocked, decision.gap)
        times = (pace.pushed, pace.pushed_before, pace.granted)
        return [np.asarray(part).tolist() for part in (*parts, *times)]

    plain = answers(lambda values: np.array(values, np.int64), VECTORS)
    assert answers(lambda values: tf.constant(values, tf.int64), TensorVectors()) == plain
