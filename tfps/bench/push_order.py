"""In which order workers push if their steps take given times. Pure: no TensorFlow."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfps.bench.slow_input import Delay


def push_order(durations_s: Sequence[Iterable[float]], *, pushes: int) -> list[int]:
    """The worker of each push, by when its step ends; at the same moment the first worker's.

    A worker begins a step when it has pushed the one before, until so many steps have begun. So the
    last push of each worker is one of the last, as many as there are workers.

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


@dataclass(frozen=True)
class PushScenario:
    """Workers whose pushes come in an order that follows from the lengths of their steps."""

    title: str
    workers: int
    delay: Delay

    def order(self, *, pushes: int, seed: int) -> list[int]:
        """The worker of each push."""
        lengths = [
            self.delay.durations_s(seed=seed, worker=worker, steps=pushes)
            for worker in range(self.workers)
        ]
        return push_order(lengths, pushes=pushes)
