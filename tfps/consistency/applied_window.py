"""The window of applied pushes: a vector with the largest key in each cell. Pure: no TensorFlow.

Keys grow. A push whose key is not larger than the one in its cell was applied before.

Each ticket of `fit` has a cell, which later tickets share. A ticket that is still open after
`TICKET_CELLS` later ones were applied counts as applied: it is dropped, and never applied twice.

Scheduled functions have cells of their own. The chief numbers them so that no two that may still
run share a cell (see `bridge.closure_numbers`), even if one takes very long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

TICKET_CELLS = 1 << 16
FUNCTION_CELLS = 1 << 12  # more than the number of workers, each with one function
NOT_APPLIED = -1
# Of one run of a scheduled function: its optimizer calls, and the write-back at its end.
MAX_PUSHES = 1 << 28
WRITE_BACK = MAX_PUSHES - 1  # the position of the write-back, the last push of a run

Window = np.ndarray[Any, Any]


def blank_window() -> Window:
    """Return a window in which no push was applied."""
    return np.full([TICKET_CELLS + FUNCTION_CELLS], NOT_APPLIED, np.int64)


def window_after(number: int) -> Window:
    """Return a window in which no ticket was applied, and all functions up to a number were."""
    window = blank_window()
    window[TICKET_CELLS:] = key_of_function(number, WRITE_BACK)
    return window


def cell_of_ticket(ticket: Any) -> Any:
    """Return the index of the window's cell for the optimizer calls of a ticket of `fit`."""
    return ticket % TICKET_CELLS


def cell_of_function(key: Any) -> Any:
    """Return the index of the window's cell for the pushes of a scheduled function."""
    return TICKET_CELLS + key // MAX_PUSHES % FUNCTION_CELLS


def key_of_function(number: Any, position: Any) -> Any:
    """Return a growing number from a function's number and the position of one of its pushes."""
    return number * MAX_PUSHES + position


def newest_function(windows: Iterable[Window]) -> int:
    """Return the largest number of a function in the servers' windows; -1 if there is none."""
    keys = [int(window[TICKET_CELLS:].max()) for window in windows]
    return max(keys, default=NOT_APPLIED) // MAX_PUSHES
