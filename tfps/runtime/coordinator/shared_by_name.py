"""What several functions use together, as long as one of them does."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any


class SharedByName:
    """Makes one object for a name, and again when nobody has it any more."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()

    def of(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """The object of a name."""
        found = self._known.get(name)
        if found is None:
            self._known[name] = found = make()
        return found
