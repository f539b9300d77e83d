"""The formulas of `AsyncAdam` in NumPy, as a server's optimizer of one variable."""

from __future__ import annotations

from typing import Any

import numpy as np

ARGUMENTS = {"learning_rate": 0.1, "beta_1": 0.9, "beta_2": 0.8, "epsilon": 1e-3}
RATE, BETA_1, BETA_2, EPSILON = ARGUMENTS.values()


class Scaled:
    """A second moment that all workers share; what scaled gradients do is a subclass's.

    Args:
        weight: the first value, in float64.
        workers: how many workers there are.
    """

    def __init__(self, weight: Any, workers: int = 2) -> None:
        self.weight, self.updates = weight, 0
        self.square = np.zeros_like(weight)
        self.present = workers
        self.momenta = {worker: np.zeros_like(weight) for worker in range(workers)}
        self.read_at: dict[int, int] = {}  # worker -> the updates in the weights that it has

    def pull(self, worker: int) -> None:
        """Give a worker the weight."""
        self.read_at[worker] = self.updates

    def push(self, worker: int, gradient: Any, *, base: int = 0) -> None:
        """Apply a gradient that was computed from the weight after some updates."""
        self.square = BETA_2 * self.square + (1 - BETA_2) * gradient**2
        corrected = self.square / (1 - BETA_2 ** (self.updates + 1))
        self.move(worker, RATE * gradient / (np.sqrt(corrected) + EPSILON), base)
        self.updates += 1

    def move(self, worker: int, step: Any, base: int) -> None:
        """Move the weight by a step."""
        raise NotImplementedError


class OfEachWorker(Scaled):
    """A momentum for each worker."""

    def move(self, worker: int, step: Any, base: int) -> None:
        self.momenta[worker] = BETA_1 * self.momenta[worker] - step
        self.weight = self.weight + BETA_1 * self.momenta[worker] - step


class InOrder(Scaled):
    """Ordered momentum, as the paper has it: it is subtracted."""

    def __init__(self, weight: Any, workers: int = 2) -> None:
        super().__init__(weight, workers)
        self.momentum = np.zeros_like(weight)

    def move(self, worker: int, step: Any, base: int) -> None:
        if self.updates % self.present == 0:
            self.weight = self.weight - BETA_1 * self.momentum
            self.momentum = BETA_1 * self.momentum
        late = self.updates // self.present - base // self.present
        self.momentum = self.momentum + BETA_1**late * step
        self.weight = self.weight - (1 - BETA_1 ** (late + 1)) / (1 - BETA_1) * step


FORMULAS: dict[str, type[Scaled]] = {"per_worker": OfEachWorker, "ordered": InOrder}
