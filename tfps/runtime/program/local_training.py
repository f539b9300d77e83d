"""What a program is whose workers run the optimizers: one exchange of differences per period."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode
from tfps.consistency.optimizer_limits import average_problem
from tfps.consistency.synchronous import adaptive_batches_of
from tfps.errors import UnsupportedError
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.wrapped import leaves, members
from tfps.runtime.program.program import Program
from tfps.runtime.program.schedule import LocalTraining


@dataclass(frozen=True)
class Deltas:
    """Stands in an optimizer call for the optimizers that workers have run.

    Args:
        elasticity: of `LocalSteps`.
        optimizers: those.
    """

    elasticity: float | None
    optimizers: tuple[Any, ...]

    @property
    def name(self) -> str:
        """That of the optimizers, in their order."""
        return "_".join(optimizer.name for optimizer in self.optimizers)

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
class PeriodEnd(OptimizerCall):
    """The one exchange of a period."""

    @property
    def identity(self) -> Hashable:
        optimizers = tuple(id(optimizer) for optimizer in self.optimizer.optimizers)
        return optimizers, tuple(id(variable) for variable in self.variables)


def keep_to(program: Program, mode: Mode, *, adds_counts: bool = True) -> Program:
    """Let a program that trains go by a mode; others just read, and wait for nobody.

    Args:
        program: as it was discovered.
        mode: the job's, or that of its warm-up.
        adds_counts: `optimizer.iterations` on the servers grows by local steps.

    Raises:
        UnsupportedError: an optimizer keeps averages of the weights, under local steps.
    """
    if not program.trains or not program.calls:
        return program
    program = program.scheduled(
        in_rounds=mode.backup_workers is not None,
        is_bounded=mode.bound_steps is not None,
        adaptive_batches=adaptive_batches_of(mode),
    )
    if isinstance(mode, LocalSteps):
        program = train_locally(program, mode, adds_counts=adds_counts)
    return program


def train_locally(program: Program, mode: LocalSteps, *, adds_counts: bool = True) -> Program:
    """Make a program that was just discovered one of local steps; answers that one.

    Args:
        program: its optimizer calls stay on the worker from now on.
        mode: how long.
        adds_counts: `optimizer.iterations` on the servers grows by these steps.

    Raises:
        UnsupportedError: an optimizer keeps averages of the weights.
    """
    calls = tuple(call for call in program.calls if call.optimizer is not None)
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
    local = LocalTraining(
        period_steps=mode.period_steps,
        calls=calls,
        slots=tuple(_unique([*counts, *slots])),
        counts=tuple(counts),
        rates=tuple(rates),
        adds_counts=adds_counts,
    )
    weights = _unique(variable for call in calls for variable in call.variables)
    deltas = Deltas(mode.elasticity, tuple(optimizers))
    return replace(
        program.scheduled(local=local),
        calls=[PeriodEnd(deltas, tuple(weights))],
        variables=_unique([*program.variables, *counts, *rates]),
    )


def train_alone(program: Program, *, steps: int) -> Program:
    """Make a program that was just discovered one of local steps whose weights stay on the worker.

    So do moving averages, and what else of real numbers it assigns.

    Args:
        program: of the warm-up.
        steps: of the warm-up.
    """
    program = train_locally(program, LocalSteps(steps, synchronous=True), adds_counts=False)
    (end,), local = program.calls, program.schedule.local
    assert local is not None
    of_optimizers = {id(variable) for variable in (*local.slots, *local.rates)}
    assigned = [
        variable
        for variable in program.state
        if tf.as_dtype(variable._dtype).is_floating and id(variable) not in of_optimizers
    ]
    weights = tuple(_unique([*end.variables, *assigned]))
    own = {id(variable) for variable in weights}
    return replace(
        program.scheduled(local=replace(local, slots=(*local.slots, *weights))),
        state=[variable for variable in program.state if id(variable) not in own],
        calls=[replace(end, variables=weights)],
    )


def _refuse_averages(optimizers: Sequence[Any]) -> None:
    for leaf in (leaf for optimizer in optimizers for leaf in leaves(optimizer)):
        if leaf.use_ema:
            raise UnsupportedError(f"{leaf.name}: {average_problem()}")


def _unique(variables: Any) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())
