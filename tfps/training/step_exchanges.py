"""Checks how many exchanges a step has, and whether it can be pipelined."""

from __future__ import annotations

import logging

from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import adaptive_batches_of
from tfps.errors import UnsupportedError
from tfps.runtime.program.program import Program

logger = logging.getLogger(__name__)


def refuse_several_exchanges(program: Program, *, mode: Mode, model: str) -> None:
    """Refuse a step with several exchanges if its gradients are averaged over several batches.

    Raises:
        UnsupportedError: with the name of the model.
    """
    batches = adaptive_batches_of(mode)
    if batches > 1 and program.changes_variables and not program.ends_with_its_exchange:
        raise UnsupportedError(
            f"{model}: received a training step of {len(program.calls)} exchanges under "
            f"tfps.Synchronous(adaptive_batches={batches}), expected one that ends with its only "
            "optimizer call, since servers can average only one gradient over several batches. "
            "Leave adaptive_batches out for this model."
        )


def can_be_pipelined(program: Program, *, mode: Mode, model: str) -> bool:
    """Return whether a program is to be pipelined and can be; log a warning if it cannot."""
    wanted = program.changes_variables and mode.pipeline_steps > 0
    if wanted and not program.ends_with_its_exchange:
        logger.warning(
            "%s is not pipelined: its step does not end with its only optimizer call, so part of "
            "the step waits for the reply of the servers.",
            model,
        )
    return wanted and program.ends_with_its_exchange
