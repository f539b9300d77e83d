"""Checks how many exchanges a step has."""

from __future__ import annotations

from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import adaptive_batches_of
from tfps.errors import UnsupportedError
from tfps.runtime.program.program import Program


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
