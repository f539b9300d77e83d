"""The notes that `fit` takes of its epochs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfps.job.epochs import TrainingRecord
from tfps.job.fit_loop import EpochLog
from tfps.training.report.step_rate import StepRate


class Runs:
    """Runs with a rate of 30 steps within a second."""

    def step_rate(self, kind: str, *, since_s: float) -> StepRate:
        assert kind == "train"
        rate = StepRate()
        rate.count(10, now_s=since_s + 1.0)
        rate.count(40, now_s=since_s + 2.0)
        return rate


@pytest.mark.parametrize(("known", "expected"), [(50, 50), (None, 40)])
def test_steps_that_nobody_knows_before_are_those_that_were_seen(
    known: int | None, expected: int
) -> None:
    strategy: Any = SimpleNamespace(run_state=Runs())
    log: Any = EpochLog(strategy)
    log.set_params({"steps": known})
    log.on_epoch_begin(0)
    log.on_epoch_end(0, {"loss": 0.5})
    record = TrainingRecord(log.epochs)
    assert record.steps == expected
    assert record.step_seconds == pytest.approx(expected / 30)
