"""Which workers the coordinator waits for, and whether one of them could come back now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tfps.bridge import tensorflow_private as private
from tfps.cluster import accepts_connections

LOOK_EVERY_S = 0.5


class LostWorkers:
    """Watches the addresses of lost workers.

    Args:
        coordinator: knows who is lost.
        addresses: of all workers, ``host:port``.
    """

    def __init__(self, coordinator: Any, *, addresses: Sequence[str]) -> None:
        self._coordinator, self._addresses = coordinator, addresses
        self._next_look_s = 0.0

    def somebody_is_back(self) -> bool:
        """Whether a worker that the coordinator has lost accepts connections again."""
        if time.monotonic() < self._next_look_s:
            return False
        self._next_look_s = time.monotonic() + LOOK_EVERY_S
        alive = private.alive_workers(self._coordinator)
        return any(
            accepts_connections(address, timeout_s=0.2)
            for address, there in zip(self._addresses, alive, strict=True)
            if not there
        )
