"""Describes how workers go through the steps of a program. Pure: no TensorFlow."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tfps.optimizers.optimizer_call import OptimizerCall, collect_optimizers


@dataclass(frozen=True)
class LocalTraining:
    """The settings of a program whose workers run the optimizers."""

    period_steps: int  # from one exchange to the next
    elasticity: float | None  # see `LocalSteps`
    calls: tuple[OptimizerCall, ...]  # the calls of optimizers, in the order of the step
    slots: tuple[Any, ...]  # the optimizers' variables on the worker, as Keras variables
    counts: tuple[Any, ...]  # the slots that count updates
    rates: tuple[Any, ...]  # learning rates that are variables; the servers' values count
    adds_counts: bool  # whether the servers add the increases of the counts

    @property
    def optimizers(self) -> tuple[Any, ...]:
        """The called optimizers, each once."""
        return collect_optimizers(self.calls)

    @property
    def name(self) -> str:
        """The name of the optimizers that this replaces at the end of a period."""
        return "_".join(optimizer.name for optimizer in self.optimizers)


@dataclass(frozen=True)
class MirroredTraining:
    """The weights whose copies workers update alike, by the sum of all workers' gradients."""

    weights: tuple[Any, ...]  # as Keras variables
    slots: tuple[Any, ...]  # the optimizers' variables for them, and the counts
    counts: tuple[Any, ...]  # the optimizers' counts of updates, one in each round

    def has(self, variable: Any) -> bool:
        """Return whether a weight is one of them."""
        return any(variable is weight for weight in self.weights)


@dataclass(frozen=True)
class PeriodEnd(OptimizerCall):
    """The only exchange of a period; its optimizer is a `LocalTraining`."""

    @property
    def identity(self) -> Hashable:
        return tuple(map(id, self.optimizer.optimizers)), tuple(map(id, self.variables))


class Regime(enum.Enum):
    """How workers go through the steps of a program."""

    AT_ONCE = enum.auto()  # each push is applied when it comes
    BOUNDED = enum.auto()  # a push is answered when its worker may start another step
    IN_ROUNDS = enum.auto()  # pushes are applied as one mean
    MIRRORED = enum.auto()  # rounds, with the sums of some gradients computed by the workers
    LOCAL = enum.auto()  # workers run the optimizers, and push differences
    LOCAL_IN_ROUNDS = enum.auto()  # differences are applied as one mean


@dataclass(frozen=True)
class Schedule:
    """The settings of a program's steps, from the mode and the way that a model is trained."""

    # Workers run the optimizers, and exchange after a period; None: servers run them.
    local: LocalTraining | None = None
    # Weights that workers train by all-reduce; None: there are none.
    mirrored: MirroredTraining | None = None
    in_rounds: bool = False  # pushes are applied in rounds of all workers
    is_bounded: bool = False  # a worker waits while it is too far ahead of the slowest
    # Variables that travel as rows; they are not among the program's ``variables``.
    tables: Sequence[Any] = ()
    # Codecs of gradients, see `tfps.compression`; None: gradients travel as they are.
    push: Any = None
    # Codecs of parameters in the replies to pushes, likewise.
    pull: Any = None

    @property
    def period_steps(self) -> int:
        """The number of steps that a worker takes with one ticket of the servers."""
        return 1 if self.local is None else self.local.period_steps

    @property
    def worker_slots(self) -> tuple[Any, ...]:
        """The optimizers' variables that workers update."""
        own = self.local or self.mirrored
        return () if own is None else own.slots

    @property
    def regime(self) -> Regime:
        """How workers go through their steps."""
        if self.local is not None:
            return Regime.LOCAL_IN_ROUNDS if self.in_rounds else Regime.LOCAL
        if self.mirrored is not None:
            return Regime.MIRRORED
        if self.in_rounds:
            return Regime.IN_ROUNDS
        return Regime.BOUNDED if self.is_bounded else Regime.AT_ONCE
