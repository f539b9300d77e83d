"""Workers of one process that take their steps in a given order.

A worker gets its batch when its turn comes, and the next one in the order when it comes back for
another: by then its push was answered. So the staleness of each gradient follows from the order
alone, however fast or busy the machine is.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.slow_input import Delay, one_by_one

# Of a worker for its turn. All others trace and compile their step before the first one comes back.
MAX_WAIT_S = 600.0
ALIKE = Delay(step_s=1.0)  # workers that are alike push in turn


def push_order(durations_s: Sequence[Iterable[float]], *, pushes: int) -> list[int]:
    """Return the worker of each push, in the order in which steps end; ties go to the first worker.

    A worker begins a step when it has pushed the one before, until `pushes` steps have begun. So
    the last push of each worker is among the last n pushes of n workers.

    Args:
        durations_s: of each worker, the lengths of its steps.
        pushes: how many there are.

    Example:

    >>> push_order([[1, 1, 1], [2.5]], pushes=4)
    [0, 0, 1, 0]
    """
    waiting = [iter(steps) for steps in durations_s]
    ends_s = [(float(next(steps)), worker) for worker, steps in enumerate(waiting)][:pushes]
    heapq.heapify(ends_s)
    begun, order = len(ends_s), list[int]()
    while ends_s:
        now_s, worker = heapq.heappop(ends_s)
        order.append(worker)
        if begun < pushes:
            heapq.heappush(ends_s, (now_s + float(next(waiting[worker])), worker))
            begun += 1
    return order


class OrderedTurns:
    """One worker at a time, in an order such as `push_order` gives.

    The last step of each worker is free: no later one comes back to let the next worker pass.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order
        self._free_from = len(order) - len(set(order))
        self._passed = 0  # how many steps have begun
        self._busy: int | None = None  # the worker that has not come back
        self._change = threading.Condition()

    def take(self, worker: int) -> int:
        """Return the position of a worker's next batch, as soon as it may have it.

        Raises:
            TimeoutError: the turn did not come.
        """
        with self._change:
            if self._busy == worker:
                self._busy = None
                self._change.notify_all()
            if not self._change.wait_for(lambda: self._is_turn_of(worker), MAX_WAIT_S):
                raise TimeoutError(
                    f"worker {worker} waited {MAX_WAIT_S:.0f} s for its turn, step "
                    f"{self._passed} is that of worker {self._order[self._passed]}"
                )
            position = self._passed
            self._passed += 1
            if position < self._free_from:
                self._busy = worker
            return position

    def _is_turn_of(self, worker: int) -> bool:
        if self._busy is not None:
            return False
        return self._passed >= self._free_from or self._order[self._passed] == worker


class UnorderedTurns:
    """Each worker takes each batch, or its share of it, without regard to the others."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self._lock = threading.Lock()

    def take(self, worker: int) -> int:
        """Return the position of a worker's next batch."""
        with self._lock:
            self._steps[worker] += 1
            return self._steps[worker] - 1


@dataclass(frozen=True)
class PushScenario:
    """Workers whose pushes come in an order that follows from the lengths of their steps."""

    title: str
    workers: int
    delay: Delay = ALIKE
    is_shared: bool = False  # whether all workers share each batch, and there is no order
    is_scheduled: bool = False  # whether the learning rate warms up and falls along a cosine

    @property
    def sharers(self) -> int:
        """How many workers share a batch."""
        return self.workers if self.is_shared else 1

    def take(self, *, pushes: int, seed: int) -> Callable[[int], int]:
        """Return a function that lets a worker wait for its turn and gives it a batch's number."""
        if self.is_shared:
            return UnorderedTurns().take
        return OrderedTurns(self.order(pushes=pushes, seed=seed)).take

    def order(self, *, pushes: int, seed: int) -> list[int]:
        """Return the worker of each push."""
        lengths = [
            self.delay.durations_s(seed=seed, worker=worker, steps=pushes)
            for worker in range(self.workers)
        ]
        return push_order(lengths, pushes=pushes)


def batch_rows(*, seed: int, examples: int, batch_size: int, steps: int) -> np.ndarray:
    """Return each step's examples, (steps, batch): whole visits in an order of the seed."""
    generator, whole = np.random.default_rng(seed), examples // batch_size
    visits = [
        generator.permutation(examples)[: whole * batch_size] for _ in range(-(-steps // whole))
    ]
    return np.concatenate(visits).reshape(-1, batch_size)[:steps]


@dataclass(frozen=True, eq=False)
class OrderedInput:
    """A sequence of batches for workers of this process."""

    inputs: np.ndarray
    labels: np.ndarray
    rows: np.ndarray  # of each batch
    take: Callable[[int], int]  # of a worker: the position of its next batch, when it may have it
    sharers: int = 1  # workers that share each batch

    def function(self) -> Callable[[Any], Any]:
        """Return the function for `fit`, which each worker calls with its context."""
        return lambda context: self.of_worker(context.input_pipeline_id)

    def batch(self, worker: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a worker's next batch, once its turn has come."""
        rows = self.rows[self.take(worker)]
        if self.sharers > 1:
            rows = rows[worker :: self.sharers]
        return self.inputs[rows], self.labels[rows]

    def of_worker(self, worker: int) -> Any:
        """Return the pipeline of one worker."""
        import tensorflow as tf

        arrays = (self.inputs, self.labels)

        def batch(_: Any) -> Any:
            types = [array.dtype for array in arrays]
            taken = tf.numpy_function(lambda: self.batch(worker), [], types)
            pairs = zip(taken, arrays, strict=True)
            return tuple(tf.ensure_shape(part, [None, *array.shape[1:]]) for part, array in pairs)

        # Else a worker would take a turn before its last push is answered.
        return one_by_one(tf.data.Dataset.range(2**31 - 1).map(batch))
