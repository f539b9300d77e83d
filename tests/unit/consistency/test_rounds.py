"""Rounds on several servers, under workers that push, wait, die and come back in any order."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import tensorflow as tf
from hypothesis import given, settings

from tests.scaled_examples import scaled_examples
from tests.unit.consistency.array_vectors import VECTORS
from tfps.consistency.ledger import MAX_CALLS, NEVER, NOTHING
from tfps.consistency.rounds import RoundDecision, Rounds, decide
from tfps.consistency.waiters import TensorVectors


class SimulatedServer:
    """A server with the decisions of `rounds`, tokens for those that wait, and a list of means.

    Args:
        slots: of workers.
        required: contributions for a round.
        calls: of a step.
    """

    def __init__(self, slots: int, *, required: int, calls: int) -> None:
        self.workers, self.required, self.calls = slots, required, calls
        nobody = np.zeros(slots, np.int64)
        self.state = Rounds(0, nobody + NEVER, nobody, nobody + NOTHING)
        self.tokens = [0] * slots
        # (position, optimizer call) -> incarnations
        self.sums: dict[tuple[int, int], list[int]] = defaultdict(list)
        # position, incarnations, members (of the first optimizer call)
        self.means: list[tuple[int, list[int], int]] = []
        self.dropped = 0
        self.incarnations = list(range(slots))

    def one(self, slot: int) -> np.ndarray:
        return np.eye(self.workers, dtype=np.int64)[slot]

    def following(self, position: int) -> int:
        number, call_number = divmod(position, MAX_CALLS)
        return (number + 1) * MAX_CALLS if call_number == self.calls - 1 else position + 1

    def decide(self, state: Rounds) -> None:
        turn = decide(state, required=self.required, next_position=0, may_apply=0, vectors=VECTORS)
        self.state = turn.after
        self.wake(turn.released + turn.able)

    def wake(self, released: np.ndarray) -> None:
        for slot in np.flatnonzero(released):
            self.tokens[slot] += 1

    def take(self, turn: RoundDecision, position: int, call_id: int) -> None:
        if turn.completes:
            free = (self.state.wanted < 0) | (self.state.contributed > 0)
            members = int((self.state.members(vectors=VECTORS) * free).sum())
            assert self.state.position in (position, position + 1)
            self.means.append((position, self.sums.pop((position, call_id)), members))
        self.state = turn.after
        self.wake(turn.released + turn.able)

    def push(self, slot: int, position: int, call_id: int) -> None:
        accepted = int(self.state.accepts(self.one(slot), position, vectors=VECTORS))
        if accepted:
            self.sums[position, call_id].append(self.incarnations[slot])
        self.dropped += 1 - accepted
        self.state = self.state.after_push(
            self.one(slot),
            accepted=accepted,
            alive=1,
            next_position=self.following(position),
            call_id=call_id,
            vectors=VECTORS,
        )
        self.take(self._decide(position, accepted, call_id), position, call_id)

    def look_again(self, slot: int, position: int, call_id: int) -> None:
        self.tokens[slot] -= 1
        may_apply = self.state.can_apply(self.one(slot), position, call_id=call_id, vectors=VECTORS)
        self.take(self._decide(position, int(may_apply), call_id), position, call_id)

    def _decide(self, position: int, may_apply: int, call_id: int) -> RoundDecision:
        return decide(
            self.state,
            required=self.required,
            next_position=self.following(position),
            may_apply=may_apply,
            call_id=call_id,
            vectors=VECTORS,
        )

    def waits(self, slot: int) -> bool:
        return bool(self.state.wanted[slot] >= 0)


class Worker:
    """A closure: it agrees on a round, takes steps, and leaves; each yield lets others go on.

    What it yields says whether it can go on.
    """

    def __init__(self, slot: int, job: Job) -> None:
        self.worker, self.job = slot, job
        self.versions: list[int] = []
        self.call_id = 1

    def run(self) -> Iterator[Any]:
        servers = self.job.servers
        for server in servers:
            yield None
            server.decide(server.state.after_entry(server.one(self.worker), vectors=VECTORS))
        yield from self._agree(enters=True)
        while self.job.tickets:
            self.job.tickets -= 1
            if self.job.call_ids > 1:  # a scheduled function: it pulls, and calls some optimizer
                yield from self._agree(enters=True)
                self.call_id = self.job.order.randint(1, self.job.call_ids)
            for call_number in range(self.job.calls):
                yield from self._exchange(call_number)
            yield from self._agree(enters=False)
        for server in servers:
            yield None
            self.job.leave(server, self.worker)

    def _agree(self, *, enters: bool) -> Iterator[Any]:
        servers = self.job.servers
        if enters:
            self.versions = [int(server.state.position) for server in servers]
        while enters or not self._is_agreed:
            latest = -(-max(self.versions) // MAX_CALLS)
            waiting = {}
            for server in servers:
                yield None
                worker = server.one(self.worker)
                ask = server.state.after_take_part if enters else server.state.after_await
                server.decide(ask(worker, latest, vectors=VECTORS))
                waiting[server] = NOTHING
            yield from self._wait(waiting)
            if self._is_agreed:
                return

    @property
    def _is_agreed(self) -> bool:
        return len(set(self.versions)) == 1 and self.versions[0] % MAX_CALLS == 0

    def _exchange(self, call_number: int) -> Iterator[Any]:
        positions = {
            server: version if version % MAX_CALLS == call_number else NOTHING
            for server, version in zip(self.job.servers, self.versions, strict=True)
        }
        for server, position in positions.items():
            yield None
            server.push(self.worker, position, self.call_id)
        yield from self._wait(positions)

    def _wait(self, positions: dict[SimulatedServer, int]) -> Iterator[Any]:
        """Take tokens of each server, in any order, until none holds it back."""
        found: dict[SimulatedServer, int] = {}
        while len(found) < len(positions):
            for server in positions.keys() - found.keys():
                if not server.waits(self.worker):
                    found[server] = int(server.state.position)
            left = positions.keys() - found.keys()
            if left:
                yield lambda left=left: any(
                    server.tokens[self.worker] or not server.waits(self.worker) for server in left
                )
                for server in left:
                    if server.tokens[self.worker]:
                        server.look_again(self.worker, positions[server], self.call_id)
        self.versions = [found[server] for server in self.job.servers]


class Job:
    """All of it; a random order of everything that can happen next."""

    def __init__(
        self,
        order: random.Random,
        *,
        slots: int,
        servers: int,
        backup: int,
        calls: int = 1,
        call_ids: int = 1,
    ) -> None:
        self.order, self.workers, self.calls, self.tickets = order, slots, calls, 0
        self.call_ids = call_ids
        required = slots - backup
        self.servers = [
            SimulatedServer(slots, required=required, calls=calls) for _ in range(servers)
        ]

    def leave(self, server: SimulatedServer, slot: int) -> None:
        server.incarnations[slot] += self.workers
        server.decide(server.state.after_leave(server.one(slot), vectors=VECTORS))

    def expect(self, slots: list[int]) -> None:
        there = np.array([int(slot in slots) for slot in range(self.workers)])
        for server in self.servers:
            server.decide(server.state.after_expect(there, vectors=VECTORS))

    def evict(self, slot: int) -> Iterator[Any]:
        for server in self.servers:
            yield None
            self.leave(server, slot)
            server.tokens[slot] = 0  # its request has ended; the queue is empty

    def run(self, tickets: int, *, deaths: int = 0) -> None:
        self.tickets = tickets
        self.expect(list(range(self.workers)))
        running = {slot: Worker(slot, self).run() for slot in range(self.workers)}
        evictions: dict[int, Iterator[Any]] = {}
        ready: dict[int, Any] = dict.fromkeys(running)
        while running or evictions:
            if deaths and running and self.order.random() < 0.02:
                slot = self.order.choice(sorted(running))
                del running[slot], ready[slot]
                evictions[slot], deaths = self.evict(slot), deaths - 1
            can = [("run", s) for s in running if ready[s] is None or ready[s]()]
            can += [("evict", s) for s in evictions]
            assert can or not running, f"no worker can go on: {[s.state for s in self.servers]}"
            if not can:
                break
            kind, slot = self.order.choice(sorted(can))
            try:
                if kind == "run":
                    ready[slot] = next(running[slot])
                else:
                    next(evictions[slot])
            except StopIteration:
                if kind == "run":
                    del running[slot]
                else:
                    del evictions[slot]
                    if self.order.random() < 0.5:
                        running[slot], ready[slot] = Worker(slot, self).run(), None


SIZES = {"slots": st.integers(1, 4), "servers": st.integers(1, 3), "calls": st.integers(1, 2)}


@settings(deadline=None, max_examples=scaled_examples(150))
@given(order=st.randoms(use_true_random=False), tickets=st.integers(0, 25), **SIZES)
def test_every_round_has_all_workers(
    order: random.Random, tickets: int, slots: int, servers: int, calls: int
) -> None:
    job = Job(order, slots=slots, servers=servers, backup=0, calls=calls)
    for _ in range(2):
        job.run(tickets)
    first = job.servers[0]
    means = [[(p, sorted(w)) for p, w, _ in server.means] for server in job.servers]
    assert all(of_server == means[0] for of_server in means)
    assert sum(len(workers) for _, workers, _ in first.means) == 2 * tickets * calls
    assert all(len(workers) == members for _, workers, members in first.means)
    assert not any(server.dropped for server in job.servers)
    # Each worker has one step of a round, and only the rounds at the end miss some.
    sizes = [len(workers) for _, workers, _ in first.means[: tickets // slots * calls]]
    assert set(sizes) <= {slots}


@settings(deadline=None, max_examples=scaled_examples(150))
@given(
    order=st.randoms(use_true_random=False),
    tickets=st.integers(0, 25),
    backup=st.integers(0, 3),
    deaths=st.integers(0, 4),
    sizes=st.fixed_dictionaries(SIZES),
)
def test_nobody_waits_for_ever(
    order: random.Random, tickets: int, backup: int, deaths: int, sizes: dict[str, int]
) -> None:
    slots = sizes["slots"]
    backup = min(backup, slots - 1)
    job = Job(order, backup=backup, **sizes)
    job.run(tickets, deaths=deaths)
    job.run(5)
    for server in job.servers:
        counts = Counter(position for position, _, _ in server.means)
        assert set(counts.values()) <= {1}
        for _, workers, members in server.means:
            assert len(workers) == len(set(workers))
            assert len(workers) >= min(slots - backup, members)


FUNCTIONS = {**SIZES, "calls": st.just(1), "call_ids": st.integers(2, 3)}


@settings(deadline=None, max_examples=scaled_examples(80))
@given(
    order=st.randoms(use_true_random=False),
    tickets=st.integers(0, 25),
    sizes=st.fixed_dictionaries(FUNCTIONS),
)
def test_a_round_of_several_optimizers_applies_each(
    order: random.Random, tickets: int, sizes: dict[str, int]
) -> None:
    job = Job(order, backup=0, **sizes)
    for _ in range(2):
        job.run(tickets)
    rounds = []
    for server in job.servers:
        assert not any(server.sums.values())
        assert not server.dropped
        assert server.state.position % MAX_CALLS == 0
        by_position: dict[int, list[list[int]]] = defaultdict(list)
        for position, workers, _ in server.means:
            by_position[position].append(sorted(workers))
        assert list(by_position) == sorted(by_position)
        rounds.append({position: sorted(means) for position, means in by_position.items()})
    assert all(of_server == rounds[0] for of_server in rounds)
    assert sum(len(workers) for means in rounds[0].values() for workers in means) == 2 * tickets


@settings(deadline=None, max_examples=scaled_examples(80))
@given(
    order=st.randoms(use_true_random=False),
    tickets=st.integers(0, 25),
    backup=st.integers(0, 3),
    deaths=st.integers(0, 4),
    sizes=st.fixed_dictionaries(FUNCTIONS),
)
def test_nobody_waits_for_ever_for_an_optimizer(
    order: random.Random, tickets: int, backup: int, deaths: int, sizes: dict[str, int]
) -> None:
    job = Job(order, backup=min(backup, sizes["slots"] - 1), **sizes)
    job.run(tickets, deaths=deaths)
    job.run(5)
    for server in job.servers:
        assert server.state.position % MAX_CALLS == 0
        counts = Counter(position for position, _, _ in server.means)
        assert max(counts.values(), default=0) <= sizes["call_ids"]


NUMBERS = st.lists(st.integers(0, 3), min_size=3, max_size=3)
UNITS = st.lists(st.integers(-2, 2), min_size=3, max_size=3)
WANTED = st.lists(st.sampled_from([NOTHING, 0, 1, 16, 17, 32]), min_size=3, max_size=3)


@settings(deadline=None, max_examples=scaled_examples(50))
@given(
    position=st.sampled_from([0, 1, 16, 17, 32]),
    vectors_of=st.tuples(NUMBERS, UNITS, WANTED),
    may_apply=st.integers(0, 1),
    call_id=st.integers(1, 2),
)
def test_tensors_decide_as_arrays(
    position: int, vectors_of: tuple[list[int], ...], may_apply: int, call_id: int
) -> None:
    def results(convert: Any, vectors: Any) -> list[list[int]]:
        state = Rounds(*map(convert, (position, *vectors_of)))
        worker = convert([0, 1, 0])
        accepted = state.accepts(worker, state.position, vectors=vectors)
        state = state.after_push(
            worker,
            accepted=accepted,
            alive=convert(1),
            next_position=state.position + 1,
            call_id=call_id,
            vectors=vectors,
        )
        able = state.can_apply(worker, state.position, call_id=call_id, vectors=vectors)
        state = state.after_take_part(convert([0, 0, 1]), convert(1), vectors=vectors)
        turn = decide(
            state,
            required=2,
            next_position=state.position + 1,
            may_apply=convert(may_apply) * accepted,
            call_id=call_id,
            vectors=vectors,
        )
        after = turn.after.after_leave(convert([1, 0, 0]), vectors=vectors)
        parts = (after.position, after.begins, after.contributed, after.wanted, able)
        turned = (turn.completes, turn.released, turn.able)
        return [np.asarray(part).tolist() for part in (*parts, *turned)]

    plain = results(lambda values: np.array(values, np.int64), VECTORS)
    assert results(lambda values: tf.constant(values, tf.int64), TensorVectors()) == plain


def test_a_round_that_is_given_up_has_no_contributions() -> None:
    """Its members are expected again; a worker that was not among them is not waited for."""
    begins = np.array([3, 3, NEVER, NEVER])
    contributed, wanted = np.array([1, 0, 0, 0]), np.array([4 * MAX_CALLS, *[NOTHING] * 3])
    state = Rounds(3 * MAX_CALLS, begins, contributed, wanted)
    after = state.after_regroup(np.array([1, 0, 0, 1]), vectors=VECTORS)
    assert after.position == 4 * MAX_CALLS
    assert after.begins.tolist() == [4, 3, NEVER, 4]
    assert after.contributed.tolist() == [0] * 4
    assert after.wanted.tolist() == [NOTHING] * 4
