"""The random states of a model's seed generators, before and after a run of tickets."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.functions.chief_constant import chief_constant
from tfps.runtime.compile.compiled import CompiledProgram
from tfps.runtime.program.program import Program

Array = np.ndarray[Any, Any]


def seed_states(program: Program) -> Array:
    """The states at the first ticket, int64 [generators, 2]."""
    states = [np.asarray(v._value.numpy(), np.int64) for v in program.seeds]
    return np.stack(states) if states else np.zeros([0, 2], np.int64)


def after_draws(program: Program, seeds: Array, *, steps: int = 0, totals: Array) -> Array:
    """The states behind what steps have drawn.

    Args:
        program: what the step touches.
        seeds: int64 [generators, 2], the states before.
        steps: that all workers have completed, whose draws can be counted.
        totals: of what all steps have reported (see `MetricTotals`).
    """
    states, reported = seeds.copy(), iter(program.totals.drawn(totals))
    for state, draws in zip(states, program.draws_per_step, strict=True):
        state += next(reported) if draws is None else np.array([0, steps * draws])
    return states


def seeds_of_visit(compiled: CompiledProgram, seeds: Array, *, workers: int) -> tf.Tensor:
    """The states that a worker begins with: the only one goes on behind what it has drawn.

    Args:
        compiled: the program.
        seeds: int64 [generators, 2], at the first ticket of the run.
        workers: of the cluster.
    """
    if None in compiled.program.draws_per_step and workers == 1:
        _, totals, _ = compiled.servers[0].report()
        seeds = after_draws(compiled.program, seeds, totals=totals)
    return chief_constant(seeds, tf.int64)


def advance_seeds(program: Program, *, steps: int, totals: Array) -> None:
    """Let the generators go on behind what steps have drawn; see `after_draws`."""
    states = after_draws(program, seed_states(program), steps=steps, totals=totals)
    for variable, state in zip(program.seeds, states, strict=True):
        variable._value.assign(state.astype(variable._dtype))
