"""Which variables of a program are tables of which only the rows of a batch travel."""

from __future__ import annotations

from typing import Any

from tfps.bridge.pieces import all_pieces
from tfps.optimizers.correction import Correction
from tfps.optimizers.remembering import Remembering
from tfps.optimizers.wrapped import members
from tfps.runtime.program import Program
from tfps.runtime.server_tables import size_bytes_of

# A request for rows costs 0.3 ms, and so do 400 KB there and back: twice as much leaves no doubt.
LEAST_TABLE_BYTES = 1 << 20


def let_rows_travel(program: Program) -> None:
    """Take large tables out of what a program pulls and pushes as a whole.

    That is for steps with one exchange after another: where a worker keeps tables between
    exchanges, or several devices have a copy each, tables travel as a whole. So they do for
    optimizers that remember what each worker was handed.

    Args:
        program: discovered, and told how its workers train.
    """
    if (
        program.local is not None
        or program.pipelined
        or program.adaptive_batches > 1
        or len(program.devices.names) > 1
        or any(_remembers(call.optimizer) for call in program.optimizer_calls)
    ):
        return
    tables = [v for v in program.looked_up if size_bytes_of(v._value) >= LEAST_TABLE_BYTES]
    program.tables = tables
    known = {id(table) for table in program.tables}
    program.variables = [v for v in program.variables if id(v) not in known]
    for piece in all_pieces(program.tables):
        piece._value.stays_alone = True


def _remembers(optimizer: Any) -> bool:
    return any(isinstance(member, Correction | Remembering) for member in members(optimizer))
