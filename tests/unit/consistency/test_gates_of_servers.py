"""Servers that gate each by itself: workers that come, go and die never all wait for each other."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.unit.consistency.array_vectors import VECTORS
from tests.unit.consistency.gate_machine import one
from tfps.consistency.clock import Clocks, decide

JOIN, PUSH = "join", "push"
SEEDS = 20


def nothing(slots: int) -> np.ndarray:
    return np.zeros(slots, np.int64)


class Server:
    """One server's ledger, as its gate keeps them."""

    def __init__(self, slots: int, bound: int) -> None:
        self.bound, self.slots = bound, slots
        self.state = Clocks(nothing(slots), nothing(slots), nothing(slots))

    def join(self, slot: int) -> int:
        worker = one(slot, self.slots)
        active = self.state.active | worker
        state = Clocks(self.state.clocks, active, self.state.waiting)
        self._decide(state.after_entry(worker, vectors=VECTORS), nothing(self.slots))
        return int(self.state.clocks[slot])

    def push(self, slot: int, clock: int) -> None:
        worker = one(slot, self.slots)
        self._decide(self.state.after_step(worker, clock, vectors=VECTORS), worker)

    def lose(self, slot: int) -> None:
        active = self.state.active * (1 - one(slot, self.slots))
        self._decide(Clocks(self.state.clocks, active, self.state.waiting), nothing(self.slots))

    def _decide(self, state: Clocks, asking: np.ndarray) -> None:
        decision = decide(state, asking=asking, bound_steps=self.bound, vectors=VECTORS)
        self.state = decision.after
        assert decision.gap <= self.bound


@dataclass
class Worker:
    """A worker: its message, the servers that have yet to get it, and the clock it starts from."""

    message: str = ""
    to: set[int] = field(default_factory=set)
    clock: int = 0


class Cluster:
    """Servers and workers whose messages arrive in any order."""

    def __init__(self, seed: int, *, workers: int, servers: int, bound: int) -> None:
        self.random = random.Random(seed)
        self.servers = [Server(workers, bound) for _ in range(servers)]
        self.workers: dict[int, Worker] = {}
        self.slots = workers

    def is_waiting(self, slot: int) -> bool:
        return any(server.state.waiting[slot] for server in self.servers)

    def happen(self) -> None:
        """A worker dies or comes, ends a step, or a message of it arrives."""
        there = list(self.workers.items())
        messages = [(slot, p) for slot, worker in there for p in sorted(worker.to)]
        idle = [slot for slot, worker in there if not worker.to]
        ready = [slot for slot in idle if not self.is_waiting(slot)]
        away = sorted(set(range(self.slots)) - set(self.workers))
        assert messages or ready or away, "all wait for each other"
        if idle and self.random.random() < 0.05:
            self._die(self.random.choice(idle))
            return
        action = self.random.choice([*messages, *((slot, -1) for slot in (*ready, *away))])
        if action in messages:
            self._deliver(*action)
            return
        worker = self.workers.setdefault(action[0], Worker())
        worker.message = PUSH if action[0] in ready else JOIN
        worker.clock += worker.message == PUSH
        worker.to = set(range(len(self.servers)))

    def _die(self, slot: int) -> None:
        del self.workers[slot]
        for server in self.servers:
            server.lose(slot)

    def _deliver(self, slot: int, p: int) -> None:
        worker, server = self.workers[slot], self.servers[p]
        worker.to.discard(p)
        if worker.message == JOIN:
            worker.clock = max(worker.clock, server.join(slot))
        else:
            server.push(slot, worker.clock)


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("bound", [0, 1, 4])
def test_somebody_can_always_go_on(servers: int, bound: int) -> None:
    for seed in range(SEEDS):
        cluster = Cluster(seed, workers=3 + seed % 2, servers=servers, bound=bound)
        for _ in range(300):
            cluster.happen()
