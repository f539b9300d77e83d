"""How long each step of each worker takes: a pure function of the seed, the worker and the step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Delay:
    """Steps of a stated length, some of which take longer.

    Stragglers come in two kinds: a machine that is slow all the time, and moments in which any of
    them is. Both are drawn ahead from a seed, so that every mode of training meets the same ones.

    Source: Chen et al., "Revisiting Distributed Synchronous SGD", 2016; Ho et al., "More Effective
    Distributed ML via a Stale Synchronous Parallel Parameter Server", NeurIPS 2013.

    Args:
        step_s: length of a step that nothing slows down.
        slow_worker: the one whose steps all take longer; None: nobody.
        slow_factor: how many times as long they take.
        transient_share: of each worker's steps, which take longer; 0 to 1.
        transient_factor: how many times as long those take.
        spread: every step's length is spread evenly by so much around its own, as a share of it.

    Example:

    >>> Delay(step_s=0.05, slow_worker=2, slow_factor=5).durations_s(seed=1, worker=2, steps=2)
    array([0.25, 0.25])
    """

    step_s: float
    slow_worker: int | None = None
    slow_factor: float = 1.0
    transient_share: float = 0.0
    transient_factor: float = 1.0
    spread: float = 0.0

    def durations_s(self, *, seed: int, worker: int, steps: int) -> np.ndarray:
        """The lengths of a worker's first steps; those of more steps begin with the same.

        Args:
            seed: of the run.
            worker: its index.
            steps: how many.
        """
        # A row per step, so that a step's draws do not depend on how many steps are asked for.
        chance, position = np.random.default_rng([seed, worker]).random([steps, 2]).T
        own = self.slow_factor if worker == self.slow_worker else 1.0
        moment = np.where(chance < self.transient_share, self.transient_factor, 1.0)
        return self.step_s * own * moment * (1 + self.spread * (2 * position - 1))
