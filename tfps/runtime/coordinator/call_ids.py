"""Which optimizer calls of scheduled functions are one update, and where their sums lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tfps.runtime.coordinator.shared_by_name import SharedByName


class OptimizerCallIds:
    """Numbers optimizer calls: the same optimizer and variables, the same number.

    Two functions that call an optimizer, or two traces of one function, add to the same sums, so
    that a round is one mean of all workers whatever each of them runs.
    """

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._known: dict[Any, int] = {}
        # Functions that use sums keep them; an optimizer's address is its own as long as they do.
        self._sums = SharedByName()

    def number(self, call: Any, *, layouts: int) -> int:
        """Of an `OptimizerCall`, while variables have moved so often: sums lie as they do."""
        return self._known.setdefault((call.identity, layouts), next(self._next))

    def sums(self, call_id: int, server: int, make: Callable[[], Any]) -> Any:
        """The sums of an optimizer call on a server, made when nobody has them."""
        return self._sums.of((call_id, server), make)
