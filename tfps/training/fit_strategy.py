"""Lists the members of a strategy that training uses."""

from __future__ import annotations

from typing import Any, Protocol

from tfps.consistency.mode import Mode
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.runtime.compile.packed_function import PackedStrategy
from tfps.training.run_state import RunState


class FitStrategy(PackedStrategy, Protocol):
    """The members that `fit`, `evaluate` and `predict` use."""

    consistency: Mode
    fault_tolerance: FaultTolerance
    run_state: RunState

    @property
    def coordinator(self) -> Any:
        """The only coordinator of the strategy, made at its first use."""

    def alive_workers(self) -> list[bool]:
        """Return for each worker whether it takes part."""

    def stats(self) -> Any:
        """Take a snapshot of the servers' counts."""
