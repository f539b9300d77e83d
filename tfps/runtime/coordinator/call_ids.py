"""Numbers the optimizer calls of scheduled functions, so that equal calls share sums."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tfps.runtime.coordinator.shared_by_name import SharedByName


class OptimizerCallIds:
    """Numbers optimizer calls: calls of the same optimizer on the same variables share a number.

    Two functions that call an optimizer, or two traces of one function, add to the same sums. So a
    round is one mean over all workers, although they run different functions.
    """

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._known: dict[Any, int] = {}
        # Functions that use sums keep them; while they do, an optimizer's address stays unique.
        self._sums = SharedByName()

    def get_number(self, call: Any, *, layouts: int) -> int:
        """Return the number of an `OptimizerCall`; ``layouts`` counts the moves of variables."""
        return self._known.setdefault((call.identity, layouts), next(self._next))

    def get_sums(self, call_id: int, server: int, create: Callable[[], Any]) -> Any:
        """Return the sums of an optimizer call on a server; create them if no function has them."""
        return self._sums.get_or_create((call_id, server), create)
