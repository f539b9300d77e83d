"""A bound method that does not keep its object alive."""

from __future__ import annotations

import weakref
from typing import Any


def weak_method(owner: Any, name: str) -> Any:
    """Return a bound method that does not keep its owner alive; it returns None after its end."""
    reference = weakref.ref(owner)

    def call(*args: Any) -> Any:
        target = reference()
        return None if target is None else getattr(target, name)(*args)

    return call
