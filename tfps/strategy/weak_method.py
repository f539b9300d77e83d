"""A method of an object that is not kept alive by it."""

from __future__ import annotations

import weakref
from typing import Any


def weak_method(owner: Any, name: str) -> Any:
    """A bound method that does not keep its owner from being collected."""
    reference = weakref.ref(owner)

    def call(*args: Any) -> Any:
        target = reference()
        return None if target is None else getattr(target, name)(*args)

    return call
