"""Scheduled functions that wait until all are queued, and then run together."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tfps
from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.run_plan import RunLimits
from tfps.bridge.closures.step_run import StepRun

FORCED = RunLimits(fewest_closures=0, fewest_waiting=0, longest_step_s=math.inf, longest_s=1000.0)
DEADLINE_S = 30.0


class ForcedRuns:
    """Traces each function for runs when it is first scheduled, however few closures wait.

    Args:
        strategy: of one process.
        monkeypatch: pytest's.
        limits: instead of the usual ones.

    Attributes:
        sizes: for each run its number of steps, and how many of them ended well.
    """

    def __init__(
        self,
        strategy: tfps.ParameterServerStrategy,
        monkeypatch: pytest.MonkeyPatch,
        *,
        limits: RunLimits = FORCED,
    ) -> None:
        self.coordinator = strategy.coordinator
        self.queue = private.get_closure_queue(self.coordinator)
        self.queue.run_limits = limits
        self.sizes: list[tuple[int, int]] = []
        settle = StepRun.settle

        def settled(run: Any) -> Any:
            self.sizes.append((len(run.members), run.done))
            return settle(run)

        monkeypatch.setattr(StepRun, "settle", settled)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Let no function begin until the context is left, and the traces have ended."""
        with self.queue.hold():
            yield
            for thread in threading.enumerate():
                if thread.name == "tfps-trace":
                    thread.join(DEADLINE_S)

    def schedule(self, function: Any, count: int, *args: Any) -> list[Any]:
        """Schedule a function several times at once; return the remote values."""
        with self.hold():
            return [self.coordinator.schedule(function, args=args) for _ in range(count)]
