from __future__ import annotations

import itertools
import threading
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.turnstile import OrderedInput, OrderedTurns, UnorderedTurns, batch_rows, push_order

STEPS = 60
DURATIONS = st.lists(
    st.lists(st.floats(0.1, 10), min_size=STEPS, max_size=STEPS), min_size=1, max_size=5
)


@given(durations_s=DURATIONS, pushes=st.integers(1, STEPS))
def test_pushes_come_by_the_ends_of_steps(durations_s: list[list[float]], pushes: int) -> None:
    order = push_order(durations_s, pushes=pushes)
    assert len(order) == pushes
    done, ends_s = Counter[int](), list[float]()
    for worker in order:
        done[worker] += 1
        ends_s.append(sum(durations_s[worker][: done[worker]]))
    assert all(b >= a - 1e-6 for a, b in itertools.pairwise(ends_s))
    # A worker in the middle of a step when all have begun ends it among the last.
    begun = set(order)
    assert sorted(order[-len(begun) :]) == sorted(begun)


@given(workers=st.integers(1, 5), pushes=st.integers(1, 40))
def test_workers_that_are_alike_push_in_turn(workers: int, pushes: int) -> None:
    order = push_order([[1.0] * STEPS] * workers, pushes=pushes)
    assert order == [k % workers for k in range(pushes)]


def test_each_step_waits_for_the_one_before_it() -> None:
    order = push_order([[1.0] * STEPS, [2.5] * STEPS, [4.0] * STEPS], pushes=40)
    turns, steps, lock = OrderedTurns(order), list[tuple[int, int]](), threading.Lock()

    def work(worker: int) -> None:
        for _ in range(order.count(worker)):
            position = turns.take(worker)
            with lock:
                steps.append((position, worker))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    # The last step of each worker comes when it comes.
    held = len(order) - 3
    assert steps[:held] == list(enumerate(order[:held]))
    assert sorted(position for position, _ in steps) == list(range(40))


def test_a_visit_takes_each_example_at_most_once_and_seeds_differ() -> None:
    rows = batch_rows(seed=1, examples=10, batch_size=4, steps=5)
    assert rows.shape == (5, 4)
    for visit in (rows[:2], rows[2:4]):
        assert len(set(visit.ravel())) == 8
    again, other = (batch_rows(seed=k, examples=10, batch_size=4, steps=5) for k in (1, 2))
    assert (rows == again).all()
    assert (rows != other).any()


def test_workers_that_share_a_batch_take_all_of_it() -> None:
    inputs = np.arange(12)
    rows = batch_rows(seed=1, examples=12, batch_size=4, steps=3)
    shared = OrderedInput(inputs, inputs, rows, UnorderedTurns().take, sharers=2)
    for step in range(3):
        parts = [shared.batch(worker)[0] for worker in (0, 1)]
        assert [len(part) for part in parts] == [2, 2]
        assert sorted(np.concatenate(parts)) == sorted(rows[step])
