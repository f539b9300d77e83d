"""Objects that several functions share, as long as one of them uses them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any


class SharedByName:
    """Makes one object for a name, and a new one after the last reference to it is gone."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()

    def get_or_create(self, name: Hashable, create: Callable[[], Any]) -> Any:
        """Return the object of a name."""
        found = self._known.get(name)
        if found is None:
            self._known[name] = found = create()
        return found
