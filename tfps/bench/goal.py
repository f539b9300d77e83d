"""The test accuracy that trainings are timed to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GOAL = 0.85
NEVER_S = float("inf")


def seconds_to_goal(curve: Iterable[Sequence[float]]) -> float:
    """When the accuracy was first seen to reach the goal; `NEVER_S` if not.

    Args:
        curve: pairs of seconds and accuracy.

    Example:

    >>> seconds_to_goal([(0.0, 0.1), (1.5, 0.86), (2.0, 0.84)])
    1.5
    """
    return min((at_s for at_s, accuracy in curve if accuracy >= GOAL), default=NEVER_S)
