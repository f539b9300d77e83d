"""The random states of a model's seed generators, before and after a run of tickets."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfps.runtime.program.program import Program


def seed_states(program: Program) -> np.ndarray[Any, Any]:
    """The states at the first ticket, int64 [generators, 2]."""
    states = [np.asarray(v._value.numpy(), np.int64) for v in program.seeds]
    return np.stack(states) if states else np.zeros([0, 2], np.int64)


def advance_seeds(program: Program, *, steps: int) -> None:
    """Let the generators go on behind what so many steps have drawn.

    Args:
        program: what the step touches.
        steps: that all workers have completed.
    """
    for variable, draws in zip(program.seeds, program.draws_per_step, strict=True):
        state = variable._value.numpy()
        state[1] += np.array(steps * draws).astype(state.dtype)
        variable._value.assign(state)
