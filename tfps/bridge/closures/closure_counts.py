"""Applies a closure's changes to variables on the chief, once the closure has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def register_counts(closure: Any, apply: Callable[[], None]) -> None:
    """Register a function that applies the changes of a closure's run when the closure succeeds.

    If the closure runs again, its newest run replaces the earlier ones.
    """
    if closure is None:
        raise RuntimeError(
            "received no closure for a scheduled function, expected a call by its coordinator; "
            "pass the function to schedule() instead of calling it"
        )
    closure._tfps_apply_counts = apply


def apply_counts(closure: Any) -> None:
    """Apply the changes of a closure that has just succeeded."""
    apply = closure.__dict__.pop("_tfps_apply_counts", None)
    if apply is not None:
        apply()
