"""Make bound methods that do not keep their object alive."""

from __future__ import annotations

import weakref
from typing import Any


def make_weak_method(owner: Any, name: str) -> Any:
    """Return a method that does not keep its owner alive; after the owner's end it returns None."""
    reference = weakref.ref(owner)

    def call(*args: Any) -> Any:
        target = reference()
        return None if target is None else getattr(target, name)(*args)

    return call
