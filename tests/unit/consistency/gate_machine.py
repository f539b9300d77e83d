"""Workers of a server that start, stop and vanish in any order, and the gate's invariants."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.consistency.array_vectors import VECTORS
from tfps.consistency.clock import Clocks, decide


def one(worker: int, workers: int) -> np.ndarray:
    return np.eye(workers, dtype=np.int64)[worker]


class GateMachine(RuleBasedStateMachine):
    """Workers of a server: computing, waiting at the gate, or away."""

    @initialize(workers=st.integers(1, 4), bound=st.integers(0, 3))
    def start(self, workers: int, bound: int) -> None:
        nobody = np.zeros(workers, np.int64)
        self.workers, self.bound = workers, bound
        self.state = Clocks(nobody, nobody.copy(), nobody.copy())
        self.computing: set[int] = set()
        self.waiting: set[int] = set()

    def _decide(self, state: Clocks, asking: np.ndarray) -> Any:
        decision = decide(state, asking=asking, bound_steps=self.bound, vectors=VECTORS)
        self.state = decision.after
        assert decision.gap <= self.bound
        for worker in np.flatnonzero(decision.released):
            self._look_again(int(worker))
        return decision

    def _look_again(self, worker: int) -> None:
        """Let a worker that has a token decide again; evicted workers leave the gate as well."""
        assert worker in self.waiting
        self.waiting.discard(worker)
        decision = self._decide(self.state, one(worker, self.workers))
        assert not decision.blocked.any()
        if self.state.active[worker]:
            self.computing.add(worker)

    @precondition(lambda self: len(self.computing | self.waiting) < self.workers)
    @rule(data=st.data())
    def enter(self, data: st.DataObject) -> None:
        away = sorted(set(range(self.workers)) - self.computing - self.waiting)
        worker = data.draw(st.sampled_from(away))
        active = self.state.active | one(worker, self.workers)
        state = Clocks(self.state.clocks, active, self.state.waiting)
        others = [c for s, c in enumerate(state.clocks) if active[s] and s != worker]
        self._decide(state.after_entry(one(worker, self.workers), vectors=VECTORS), 0 * active)
        assert self.state.clocks[worker] == min(others, default=0)
        self.computing.add(worker)

    @precondition(lambda self: self.computing)
    @rule(data=st.data())
    def end_step(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.computing)))
        before = self.state.clocks[worker]
        mask = one(worker, self.workers)
        self.computing.discard(worker)
        decision = self._decide(self.state.after_step(mask, before + 1, vectors=VECTORS), mask)
        assert self.state.clocks[worker] == before + 1
        (self.waiting if decision.blocked[worker] else self.computing).add(worker)

    @precondition(lambda self: self.computing | self.waiting)
    @rule(data=st.data())
    def leave_or_be_let_out(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.computing | self.waiting)))
        self.computing.discard(worker)
        active = self.state.active * (1 - one(worker, self.workers))
        self._decide(Clocks(self.state.clocks, active, self.state.waiting), 0 * active)

    @invariant()
    def the_bound_holds_and_somebody_can_go_on(self) -> None:
        active = [s for s in range(self.workers) if self.state.active[s]]
        assert self.computing <= set(active)
        assert set(np.flatnonzero(self.state.waiting).tolist()) == self.waiting
        clocks = {worker: int(self.state.clocks[worker]) for worker in active}
        for worker in self.computing:
            # It started within the bound, and has not ended its step since.
            assert clocks[worker] - min(clocks.values()) <= self.bound
        for worker in self.waiting:
            assert clocks[worker] - min(clocks.values()) > self.bound
        assert self.computing or not active
