"""Workers of a server that start, stop and vanish in any order, and what holds for its gate."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tfps.consistency.clock import Clocks, Decision, decide
from tfps.consistency.vectors import ArrayVectors

VECTORS = ArrayVectors()


def one(slot: int, slots: int) -> np.ndarray:
    return np.eye(slots, dtype=np.int64)[slot]


class GateMachine(RuleBasedStateMachine):
    """Workers of a server: computing, waiting at the gate, or away."""

    @initialize(workers=st.integers(1, 4), bound=st.integers(0, 3))
    def start(self, slots: int, bound: int) -> None:
        nobody = np.zeros(slots, np.int64)
        self.workers, self.bound = slots, bound
        self.state = Clocks(nobody, nobody.copy(), nobody.copy())
        self.computing: set[int] = set()
        self.waiting: set[int] = set()

    @property
    def largest_gap(self) -> int:
        """With which a worker may start."""
        return self.bound

    def decision_for(self, state: Clocks, asking: np.ndarray) -> Decision:
        """Who may start."""
        return decide(state, asking=asking, bound_steps=self.bound, vectors=VECTORS)

    def note_entry(self, worker: np.ndarray) -> None:
        """A worker joins."""

    def note_push(self, worker: np.ndarray) -> None:
        """A worker ends a step."""

    def _decide(self, state: Clocks, asking: np.ndarray) -> Any:
        decision = self.decision_for(state, asking)
        self.state = decision.after
        assert decision.gap <= self.largest_gap
        for slot in np.flatnonzero(decision.released):
            self._look_again(int(slot))
        return decision

    def _look_again(self, slot: int) -> None:
        """What a worker does with a token; those that were let out go as well."""
        assert slot in self.waiting
        self.waiting.discard(slot)
        decision = self._decide(self.state, one(slot, self.workers))
        assert not decision.blocked.any()
        if self.state.active[slot]:
            self.computing.add(slot)

    @precondition(lambda self: len(self.computing | self.waiting) < self.workers)
    @rule(data=st.data())
    def enter(self, data: st.DataObject) -> None:
        away = sorted(set(range(self.workers)) - self.computing - self.waiting)
        slot = data.draw(st.sampled_from(away))
        active = self.state.active | one(slot, self.workers)
        state = Clocks(self.state.clocks, active, self.state.waiting)
        others = [c for s, c in enumerate(state.clocks) if active[s] and s != slot]
        self.note_entry(one(slot, self.workers))
        self._decide(state.entered(one(slot, self.workers), vectors=VECTORS), 0 * active)
        assert self.state.clocks[slot] == min(others, default=0)
        self.computing.add(slot)

    @precondition(lambda self: self.computing)
    @rule(data=st.data())
    def end_step(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.computing)))
        before = self.state.clocks[slot]
        worker = one(slot, self.workers)
        self.computing.discard(slot)
        self.note_push(worker)
        decision = self._decide(self.state.ticked(worker, before + 1, vectors=VECTORS), worker)
        assert self.state.clocks[slot] == before + 1
        (self.waiting if decision.blocked[slot] else self.computing).add(slot)

    @precondition(lambda self: self.computing | self.waiting)
    @rule(data=st.data())
    def leave_or_be_let_out(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.computing | self.waiting)))
        self.computing.discard(slot)
        active = self.state.active * (1 - one(slot, self.workers))
        self._decide(Clocks(self.state.clocks, active, self.state.waiting), 0 * active)

    @invariant()
    def the_bound_holds_and_somebody_can_go_on(self) -> None:
        active = [s for s in range(self.workers) if self.state.active[s]]
        assert self.computing <= set(active)
        assert set(np.flatnonzero(self.state.waiting).tolist()) == self.waiting
        clocks = {slot: int(self.state.clocks[slot]) for slot in active}
        for slot in self.computing:
            # It started within the bound, and has not ended its step since.
            assert clocks[slot] - min(clocks.values()) <= self.largest_gap
        for slot in self.waiting:
            assert clocks[slot] - min(clocks.values()) > self.bound
        assert self.computing or not active
