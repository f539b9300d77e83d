"""Which workers the coordinator waits for, and whether one of them could come back now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tfps.bridge import tensorflow_private as private
from tfps.runtime.coordinator.connections import ControlLine

LOOK_EVERY_S = 0.5


class LostWorkers:
    """Looks whether lost workers are back.

    Args:
        coordinator: knows who is lost.
        lines: the coordinator's line to each worker.
    """

    def __init__(self, coordinator: Any, *, lines: Sequence[ControlLine]) -> None:
        self._coordinator, self._lines = coordinator, lines
        self._next_look_s = 0.0

    def somebody_is_back(self) -> bool:
        """Whether a worker that the coordinator has lost accepts connections again."""
        if time.monotonic() < self._next_look_s:
            return False
        self._next_look_s = time.monotonic() + LOOK_EVERY_S
        alive = private.alive_workers(self._coordinator)
        return any(
            line.is_reachable(timeout_s=0.2)
            for line, there in zip(self._lines, alive, strict=True)
            if not there
        )
