"""Workers of one process that take their steps in a given order.

A worker gets its batch when its turn comes, and the next one in the order when it comes back for
another: by then its push was answered. So the staleness of each gradient follows from the order
alone, however fast or busy the machine is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

# Of a worker for its turn. All others trace and compile their step before the first one comes back.
LONGEST_WAIT_S = 600.0


class Turns(Protocol):
    """Says which batch of a sequence a worker takes, and when."""

    def take(self, worker: int) -> int:
        """The position of its next batch, as soon as it may have it."""


class Turnstile:
    """One worker at a time, in an order such as that of `tfps.bench.push_order`.

    The last step of each worker is free: nobody comes back from it to let the next one pass.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order
        self._free_from = len(order) - len(set(order))
        self._passed = 0  # how many steps have begun
        self._busy: int | None = None  # the worker that has not come back
        self._change = threading.Condition()

    def take(self, worker: int) -> int:
        """As `Turns`.

        Raises:
            TimeoutError: the turn did not come.
        """
        with self._change:
            if self._busy == worker:
                self._busy = None
                self._change.notify_all()
            if not self._change.wait_for(lambda: self._is_turn_of(worker), LONGEST_WAIT_S):
                raise TimeoutError(
                    f"worker {worker} waited {LONGEST_WAIT_S:.0f} s for its turn, step "
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


class Together:
    """Each worker takes each batch, or its share of it, without regard to the others."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self._lock = threading.Lock()

    def take(self, worker: int) -> int:
        """As `Turns`."""
        with self._lock:
            self._steps[worker] += 1
            return self._steps[worker] - 1


def batch_rows(*, seed: int, examples: int, batch_size: int, steps: int) -> np.ndarray:
    """Which examples each step takes: whole visits in an order of the seed, (steps, batch)."""
    generator, whole = np.random.default_rng(seed), examples // batch_size
    visits = [
        generator.permutation(examples)[: whole * batch_size] for _ in range(-(-steps // whole))
    ]
    return np.concatenate(visits).reshape(-1, batch_size)[:steps]


@dataclass(frozen=True, eq=False)
class OrderedInput:
    """A sequence of batches for workers of this process, in the order of some turns."""

    inputs: np.ndarray
    labels: np.ndarray
    rows: np.ndarray  # of each batch
    turns: Turns
    sharers: int = 1  # workers that share each batch

    def function(self) -> Callable[[Any], Any]:
        """The function for `fit`, which each worker calls with its context."""

        def dataset(context: Any) -> Any:
            return self.of_worker(context.input_pipeline_id)

        return dataset

    def batch(self, worker: int) -> tuple[np.ndarray, np.ndarray]:
        """The next one of a worker, when its turn has come."""
        rows = self.rows[self.turns.take(worker)]
        if self.sharers > 1:
            rows = rows[worker :: self.sharers]
        return self.inputs[rows], self.labels[rows]

    def of_worker(self, worker: int) -> Any:
        """The pipeline of one worker."""
        import tensorflow as tf

        arrays = (self.inputs, self.labels)

        def batch(_: Any) -> Any:
            types = [array.dtype for array in arrays]
            taken = tf.numpy_function(lambda: self.batch(worker), [], types)
            pairs = zip(taken, arrays, strict=True)
            return tuple(tf.ensure_shape(part, [None, *array.shape[1:]]) for part, array in pairs)

        batches = tf.data.Dataset.range(2**31 - 1).map(batch)
        options = tf.data.Options()
        # TensorFlow would fetch ahead by itself, and take a turn before the last push is answered.
        options.experimental_optimization.apply_default_optimizations = False
        options.autotune.enabled = False
        return batches.with_options(options)
