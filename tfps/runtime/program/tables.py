"""Chooses the tables of a program of which only the rows of a batch are sent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfps.bridge.variables.shards import WHOLE_BYTES, get_all_shards, get_size_bytes
from tfps.errors import UnsupportedError
from tfps.optimizers.sparse_updates import (
    refuse_inexact_row_updates,
    suggest_sparse_updates,
    updates_only_rows,
)
from tfps.runtime.program.program import Program
from tfps.runtime.program.schedule import Regime

logger = logging.getLogger(__name__)

# A look-up costs 0.3 ms, as much as 400 KB there and back; twice as many bytes leave no doubt.
LEAST_TABLE_BYTES = 1 << 20

# An update of such a whole table takes a server 50 ms with SGD and 130 ms with Adam, while the rest
# of a small step takes 5 ms (`python -m benchmarks rows`).
LARGE_TABLE_BYTES = 64 << 20

# Workers keep tables between exchanges.
WHOLE_REGIMES = {
    Regime.LOCAL: "tfps.LocalSteps",
    Regime.LOCAL_IN_ROUNDS: "tfps.LocalSteps or warm_up_steps",
}

READ_WHOLE = (
    "the step reads the whole table (a regularizer, tied weights), or looks up rows in a branch, "
    "a loop, or another function than the one that calls the optimizer"
)
LOOK_ROWS_UP = (
    "Look up its rows only in the step itself: for example, replace the regularizer by the "
    "weight_decay of the optimizer."
)
MODES_BY_ROWS = (
    "Choose a mode that sends rows, such as tfps.Asynchronous(), tfps.BoundedStaleness(s) or, in "
    "model.fit, tfps.Synchronous(); or make the table smaller."
)


def choose_row_tables(program: Program) -> Program:
    """Return a program that exchanges rows of large tables, instead of whole tables.

    This needs an exchange in each step: if a worker keeps tables between exchanges, tables travel
    as a whole. Above 64 MiB that is refused: no worker is to hold such a table. A table that the
    step itself reads as a whole travels, too; above that size a warning names it.

    A table with a row-wise optimizer travels as rows at any size: otherwise its numbers would
    depend on its size.

    Raises:
        UnsupportedError: a row-wise optimizer's table cannot travel as rows; or a table of more
            than 64 MiB would travel as a whole.
    """
    by_rows = [
        (table, call.optimizer)
        for table in program.looked_up
        for call in program.optimizer_calls
        if updates_only_rows(call.optimizer, table)
    ]
    reason = WHOLE_REGIMES.get(program.schedule.regime)
    if reason is not None and by_rows:
        raise UnsupportedError(
            f"{by_rows[0][0].path}: received tfps.optimizers.SparseUpdates with {reason}, which "
            "applies gradients of whole tables; expected tfps.Asynchronous(), "
            "tfps.BoundedStaleness(s) or tfps.Synchronous(). Choose one of those, or train "
            "without SparseUpdates."
        )
    check_whole_tables(program, reason)
    if reason is not None:
        return program
    for table, optimizer in by_rows:
        refuse_inexact_row_updates(optimizer, table)
    own = {id(table) for table, _ in by_rows}
    tables = [
        table
        for table in program.looked_up
        if id(table) in own or get_size_bytes(table._value) >= LEAST_TABLE_BYTES
    ]
    for shard in get_all_shards(tables):
        shard._value.excluded_from_slabs = True
    _warn_of_full_updates(program, tables)
    known = {id(table) for table in tables}
    rest = [v for v in program.variables if id(v) not in known]
    return replace(program.with_schedule(tables=tables), variables=rest)


def check_whole_tables(program: Program, reason: str | None) -> None:
    """Check the sizes of tables that travel as a whole.

    With a reason, a table that is too large raises an error. Without one, it travels, since the
    user's code reads it as a whole; one warning for each table names it.

    Args:
        program: a step; its ``looked_up`` and ``read_whole`` are tables.
        reason: the reason why all tables travel as a whole; None: only those of ``read_whole`` do.

    Raises:
        UnsupportedError: a table of more than 64 MiB would travel, for that reason.
    """
    tables = program.read_whole if reason is None else [*program.looked_up, *program.read_whole]
    for table in tables:
        size_bytes = get_size_bytes(table._value)
        if size_bytes <= WHOLE_BYTES:
            continue
        size = f"{size_bytes / 2**20:.1f} MiB"
        if reason is not None:
            raise UnsupportedError(
                f"{table.path}: received a table of {size} with {reason}, which sends whole "
                f"tables to workers; expected at most {WHOLE_BYTES >> 20} MiB for a table on a "
                f"worker. {MODES_BY_ROWS}"
            )
        if not table.__dict__.get("_tfps_warned_whole"):
            table.__dict__["_tfps_warned_whole"] = True
            message = "%s: each step sends the whole table of %s to the workers, because %s. %s"
            logger.warning(message, table.path, size, READ_WHOLE, LOOK_ROWS_UP)


def _warn_of_full_updates(program: Program, tables: Sequence[Any]) -> None:
    """Log, once for each large table that is updated as a whole, that `SparseUpdates` helps."""
    for table in tables:
        size_bytes = get_size_bytes(table._value)
        if size_bytes < LARGE_TABLE_BYTES or table.__dict__.get("_tfps_warned_rows"):
            continue
        for call in program.optimizer_calls:
            gains = suggest_sparse_updates(call.optimizer, table)
            if gains is not None:
                table.__dict__["_tfps_warned_rows"] = True
                logger.warning(
                    "%s: each update writes all %d MiB of the table on the servers; "
                    "tfps.optimizers.SparseUpdates(%s(...)) would update only the rows of the "
                    "batch, and %s.",
                    table.path,
                    size_bytes >> 20,
                    *gains,
                )
