"""A moving mean of the time that a worker takes for its own part of a step. Pure."""

from __future__ import annotations

from typing import Any

from tfps.consistency.logic import Logic

NOT_KNOWN = 0
# A pace rises by a quarter of the difference, since one slow batch says little about the next. It
# falls by half, since a slow moment, such as the first call of a function, is over then.
RISE, FALL = 4, 2


def pace_after(pace: Any, measured: Any, *, logic: Logic) -> Any:
    """Return the moving mean of a worker's time for a batch, in microseconds.

    Args:
        pace: the mean before; `NOT_KNOWN` if there was none.
        measured: microseconds for each of its last batches; below 1: not measured.
        logic: arithmetic on these values.
    """
    slower = measured >= pace
    change = (measured - pace) // logic.choose(slower, RISE, FALL)
    following = logic.choose(pace > NOT_KNOWN, pace + change, measured)
    return logic.choose(measured > 0, following, pace)
