"""Counts of a closure for variables on the chief: they count when the closure has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def count_at_end(closure: Any, take: Callable[[], None]) -> None:
    """Have what a run of a closure has counted taken over when the closure ends well.

    The newest run replaces those before it.
    """
    if closure is None:
        raise RuntimeError("a function that a coordinator has scheduled was called by itself")
    closure._tfps_take = take


def take_counts(closure: Any) -> None:
    """Take over what a closure that has just ended well has counted."""
    take = closure.__dict__.pop("_tfps_take", None)
    if take is not None:
        take()
