"""The totals that a returned server gets of earlier runs of `fit` and `evaluate`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfps.strategy.strategy_recovery import find_last_reading
from tfps.training.run_state import RunState


class Run:
    """A run whose totals lie where those of all others do."""

    def __init__(self, written: list[str], name: str, sampled_s: float) -> None:
        self.cells, self.sampled_s = [name], sampled_s
        self._written, self._name = written, name

    def write_totals(self) -> None:
        self._written[:] = [self._name]


@pytest.mark.parametrize("later", [1.0, -1.0], ids=["epoch", "validation"])
def test_totals_are_those_of_the_run_that_was_seen_last(later: float) -> None:
    """The totals are not those of the epoch before, which lie in the same place."""
    written: list[str] = []
    runtime: Any = SimpleNamespace()
    state = RunState(runtime, guard=runtime)
    active: Any = Run(written, "active", 5.0)
    last: Any = Run(written, "last", 5.0 - later)
    state.run = active
    state.keep_ended_run(last, model=SimpleNamespace())
    seen = find_last_reading(state, is_current=True)
    assert seen is not None
    seen.write_totals()
    newest = "active" if later > 0 else "last"
    assert written == [newest]
    assert list(seen.cells) == [newest]
