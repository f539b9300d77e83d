"""What a program is whose workers run the optimizers: one exchange of differences per period."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.optimizer_limits import average_problem
from tfps.errors import UnsupportedError
from tfps.optimizers.wrapped import leaves, members
from tfps.runtime.program.program import Program, Stage


@dataclass(frozen=True)
class Deltas:
    """Stands in a stage for the optimizers that workers have run.

    Args:
        elasticity: of `LocalSteps`.
        optimizers: those.
    """

    elasticity: float | None
    optimizers: tuple[Any, ...]

    def sent(self, value: tf.Tensor, at_begin: tf.Tensor) -> tf.Tensor:
        """What a worker tells of a weight, from its values now and at the period's begin."""
        return value - at_begin if self.elasticity is None else value

    def goes_on_with(self, mine: tf.Tensor, center: tf.Tensor) -> tf.Tensor:
        """A worker's next value of a weight, from its own and the servers' that it is answered."""
        if self.elasticity is None:
            return center
        # The center c has come nearer by a * (x - c); the worker does the same from where it was.
        pull = self.elasticity / (1 - self.elasticity)
        return mine - tf.cast(pull, mine.dtype) * (mine - center)


@dataclass(frozen=True)
class PeriodEnd(Stage):
    """The one exchange of a period."""

    @property
    def identity(self) -> Hashable:
        optimizers = tuple(id(optimizer) for optimizer in self.optimizer.optimizers)
        return optimizers, tuple(id(variable) for variable in self.variables)


@dataclass(frozen=True)
class LocalTraining:
    """How workers of a program train by themselves.

    Args:
        period_steps: from one exchange to the next.
        calls: of optimizers, in the order of the step.
        slots: what the optimizers keep on the worker, as Keras variables.
        counts: those of them that count their updates.
        rates: the learning rates that are variables; the servers' are everybody's.
        adds_counts: the servers add what these have grown by.
    """

    period_steps: int
    calls: tuple[Stage, ...]
    slots: tuple[Any, ...]
    counts: tuple[Any, ...]
    rates: tuple[Any, ...]
    adds_counts: bool


def train_locally(program: Program, mode: LocalSteps, *, adds_counts: bool = True) -> None:
    """Make a program that was just discovered one of local steps.

    Args:
        program: its optimizer calls stay on the worker from now on.
        mode: how long.
        adds_counts: `optimizer.iterations` on the servers grows by these steps.

    Raises:
        UnsupportedError: an optimizer keeps averages of the weights.
    """
    calls = tuple(stage for stage in program.stages if stage.optimizer is not None)
    optimizers = list({id(call.optimizer): call.optimizer for call in calls}.values())
    _refuse_averages(optimizers)
    every = [member for optimizer in optimizers for member in members(optimizer)]
    counts = _unique(member._iterations for member in every)
    rates = _unique(
        member._learning_rate
        for member in every
        if isinstance(member._learning_rate, keras.Variable)
    )
    known = {id(rate) for rate in rates}
    slots = [v for v in _unique(v for o in optimizers for v in o.variables) if id(v) not in known]
    program.local = LocalTraining(
        period_steps=mode.period_steps,
        calls=calls,
        slots=tuple(_unique([*counts, *slots])),
        counts=tuple(counts),
        rates=tuple(rates),
        adds_counts=adds_counts,
    )
    weights = _unique(variable for call in calls for variable in call.variables)
    deltas = Deltas(mode.elasticity, tuple(optimizers))
    program.stages = [PeriodEnd(deltas, tuple(weights))]
    program.variables = list(_unique([*program.variables, *counts, *rates]))


def train_alone(program: Program, *, steps: int) -> None:
    """Make a program that was just discovered one of local steps whose weights stay on the worker.

    So do moving averages, and what else of real numbers it assigns.

    Args:
        program: of the warm-up.
        steps: of the warm-up.
    """
    train_locally(program, LocalSteps(steps, synchronous=True), adds_counts=False)
    (end,), local = program.stages, program.local
    of_optimizers = {id(variable) for variable in (*local.slots, *local.rates)}
    assigned = [
        variable
        for variable in program.state
        if tf.as_dtype(variable._dtype).is_floating and id(variable) not in of_optimizers
    ]
    weights = tuple(_unique([*end.variables, *assigned]))
    own = {id(variable) for variable in weights}
    program.state = [variable for variable in program.state if id(variable) not in own]
    program.local = dataclasses.replace(local, slots=(*local.slots, *weights))
    program.stages = [dataclasses.replace(end, variables=weights)]


def _refuse_averages(optimizers: Sequence[Any]) -> None:
    for leaf in (leaf for optimizer in optimizers for leaf in leaves(optimizer)):
        if leaf.use_ema:
            raise UnsupportedError(f"{leaf.name}: {average_problem()}")


def _unique(variables: Any) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())
