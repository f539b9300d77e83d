"""Schedules programs by the mode, such as local steps, in which workers run the optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import keras

from tfps.compression.directions import PushPull
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode
from tfps.consistency.optimizer_limits import average_problem
from tfps.errors import UnsupportedError
from tfps.optimizers.optimizer_call import collect_optimizers
from tfps.optimizers.wrapped import get_leaf_optimizers, get_nested_optimizers
from tfps.runtime.program.program import Program
from tfps.runtime.program.schedule import LocalTraining, PeriodEnd


def apply_mode(
    program: Program, mode: Mode, *, compression: PushPull | None = None, adds_counts: bool = True
) -> Program:
    """Return a program with the schedule of a mode; one that changes no variable stays as it is.

    Args:
        program: the discovered program.
        mode: the job's mode, or that of its warm-up.
        compression: the job's codecs; None: there are none.
        adds_counts: whether `optimizer.iterations` on the servers grows by local steps.

    Raises:
        UnsupportedError: an optimizer keeps averages of the weights, under local steps.
    """
    if not program.changes_variables or not program.calls:
        return program
    program = program.with_schedule(
        in_rounds=mode.backup_workers is not None,
        is_bounded=mode.bound_steps is not None,
        push=None if compression is None else compression.push,
        pull=None if compression is None else compression.pull,
    )
    if isinstance(mode, LocalSteps):
        program = _train_locally(program, mode, adds_counts=adds_counts)
    return program


def _train_locally(program: Program, mode: LocalSteps, *, adds_counts: bool) -> Program:
    calls = tuple(call for call in program.calls if call.optimizer is not None)
    optimizers = collect_optimizers(calls)
    for leaf in (leaf for optimizer in optimizers for leaf in get_leaf_optimizers(optimizer)):
        if leaf.use_ema:
            raise UnsupportedError(f"{leaf.name}: {average_problem()}")
    every = [member for optimizer in optimizers for member in get_nested_optimizers(optimizer)]
    counts = _unique(member._iterations for member in every)
    rates = _unique(
        member._learning_rate
        for member in every
        if isinstance(member._learning_rate, keras.Variable)
    )
    states = _unique([*counts, *(v for optimizer in optimizers for v in optimizer.variables)])
    local = LocalTraining(
        period_steps=mode.period_steps,
        elasticity=mode.elasticity,
        calls=calls,
        slots=tuple(_exclude(states, rates)),
        counts=tuple(counts),
        rates=tuple(rates),
        adds_counts=adds_counts,
    )
    weights = _unique(variable for call in calls for variable in call.variables)
    return replace(
        program.with_schedule(local=local),
        calls=[PeriodEnd(local, tuple(weights))],
        variables=_unique([*program.variables, *counts, *rates]),
    )


def _unique(variables: Iterable[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def _exclude(variables: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    known = {id(variable) for variable in others}
    return [variable for variable in variables if id(variable) not in known]
