"""How workers exchange, and after how many steps: the rows of `python -m benchmarks batch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tfps

ASYNCHRONOUS, SYNCHRONOUS, ELASTIC = KINDS = ("asynchronous", "synchronous", "elastic")
# Divided by the number of workers: Zhang, Choromanska and LeCun, "Deep Learning with Elastic
# Averaging SGD", NeurIPS 2015.
ELASTICITY = 0.9


@dataclass(frozen=True, order=True)
class Exchange:
    """The kind and the period of a worker's exchanges with the servers.

    Args:
        kind: by itself, with all others at once, or so that worker and servers pull each other.
        period_steps: optimizer steps of a worker from one exchange to the next; 1: no local steps.

    Example:

    >>> Exchange(SYNCHRONOUS, 4).title, Exchange(SYNCHRONOUS, 1).title
    ('4 local steps, synchronous', 'synchronous')
    """

    kind: str
    period_steps: int

    @property
    def title(self) -> str:
        """Return its name in tables and plots."""
        if self.period_steps == 1:
            return self.kind
        suffix = "" if self.kind == ASYNCHRONOUS else f", {self.kind}"
        return f"{self.period_steps} local steps{suffix}"

    def mode(self, *, workers: int) -> Any:
        """Return the value of `consistency`; imports TensorFlow."""
        if self.kind == ELASTIC:
            return tfps.LocalSteps(self.period_steps, elasticity=ELASTICITY / workers)
        is_synchronous = self.kind == SYNCHRONOUS
        if self.period_steps == 1:
            return tfps.Synchronous() if is_synchronous else tfps.Asynchronous()
        return tfps.LocalSteps(self.period_steps, synchronous_periods=is_synchronous)


def exchanges(kinds: Sequence[str], periods: Sequence[int]) -> list[Exchange]:
    """Return all of them in the order of the report; elastic ones have only the longest period.

    Example:

    >>> [exchange.title for exchange in exchanges(["elastic", "asynchronous"], [1, 4])]
    ['asynchronous', '4 local steps', '4 local steps, elastic']
    """
    every = [Exchange(kind, steps) for kind in KINDS[:2] if kind in kinds for steps in periods]
    elastic = ELASTIC in kinds and max(periods) > 1
    return [*every, *([Exchange(ELASTIC, max(periods))] if elastic else [])]
