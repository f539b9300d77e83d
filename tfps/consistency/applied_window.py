"""Which pushes a server has applied: a vector of the largest key in each cell. Pure: no TensorFlow.

Keys grow. A push whose key is not above the one in its cell has been applied before.

Each ticket of `fit` has a cell, and later tickets share it. One that is still open when so many
later ones have been applied counts as applied: it is dropped rather than ever applied twice.

Scheduled functions have cells of their own. The chief hands out their numbers so that no two that
may still be run share a cell (see `bridge.closure_numbers`): however long one takes, it is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

TICKET_CELLS = 1 << 16
FUNCTION_CELLS = 1 << 12  # more than there are workers, each with one function
NOT_APPLIED = -1
# Of one run of a scheduled function: its optimizer calls, and at its end what it has assigned.
MAX_PUSHES = 1 << 28
WRITE_BACK = MAX_PUSHES - 1  # the position of the latter; nothing of a run comes after it

Window = np.ndarray[Any, Any]


def blank_window() -> Window:
    """Nothing has been applied."""
    return np.full([TICKET_CELLS + FUNCTION_CELLS], NOT_APPLIED, np.int64)


def window_after(number: int) -> Window:
    """No ticket has been applied, and whatever comes of functions up to a number is late."""
    window = blank_window()
    window[TICKET_CELLS:] = key_of_function(number, WRITE_BACK)
    return window


def cell_of_ticket(ticket: Any) -> Any:
    """Where it is remembered which optimizer calls of a ticket of `fit` were applied."""
    return ticket % TICKET_CELLS


def cell_of_function(key: Any) -> Any:
    """Where it is remembered which pushes of a scheduled function were applied."""
    return TICKET_CELLS + key // MAX_PUSHES % FUNCTION_CELLS


def key_of_function(number: Any, position: Any) -> Any:
    """A function's number and the position of one of its pushes as one growing number."""
    return number * MAX_PUSHES + position


def newest_function(windows: Iterable[Window]) -> int:
    """The largest number of a function that any server remembers; -1 if there is none."""
    keys = [int(window[TICKET_CELLS:].max()) for window in windows]
    return max(keys, default=NOT_APPLIED) // MAX_PUSHES
