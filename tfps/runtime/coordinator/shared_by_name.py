"""Shares objects between functions, as long as one function uses them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any


class SharedByName:
    """Creates one object for each name, and a new one after the last reference to it is gone."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()

    def get_or_create(self, name: Hashable, create: Callable[[], Any]) -> Any:
        """Return the object of a name; create it if it does not exist."""
        existing = self._known.get(name)
        if existing is None:
            self._known[name] = existing = create()
        return existing
