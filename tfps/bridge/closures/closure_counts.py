"""Counts that a closure makes for variables on the chief; applied once the closure has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def count_at_end(closure: Any, take: Callable[[], None]) -> None:
    """Register a function that applies the counts of a closure's run when the closure succeeds.

    If the closure runs again, its newest run replaces the earlier ones.
    """
    if closure is None:
        raise RuntimeError(
            "received no closure for a scheduled function, expected a call by its coordinator; "
            "pass the function to schedule() instead of calling it"
        )
    closure._tfps_take = take


def take_counts(closure: Any) -> None:
    """Apply the counts of a closure that has just succeeded."""
    take = closure.__dict__.pop("_tfps_take", None)
    if take is not None:
        take()
