"""Which loop, and which step, the schedule of a program takes: one line for each regime."""

from __future__ import annotations

from typing import NamedTuple

from tfps.runtime.program.schedule import Regime
from tfps.runtime.worker.fit_local import LocalLoop
from tfps.runtime.worker.fit_loop import FitLoop
from tfps.runtime.worker.fit_pipelined import PipelinedLoop
from tfps.runtime.worker.fit_quota import QuotaLoop
from tfps.runtime.worker.function_local import LocalCalls, LocalRounds
from tfps.runtime.worker.function_member import BoundedStep, RoundStep
from tfps.runtime.worker.function_step import FunctionStep


class WorkerHalf(NamedTuple):
    """What traces the worker's half of a program."""

    loop: type[FitLoop]  # of a program of `fit`, which makes its steps
    function_step: type[FunctionStep] | None  # None: scheduled functions are refused


REGIMES = {
    Regime.AT_ONCE: WorkerHalf(FitLoop, FunctionStep),
    Regime.BOUNDED: WorkerHalf(FitLoop, BoundedStep),
    Regime.PIPELINED: WorkerHalf(PipelinedLoop, None),
    Regime.IN_ROUNDS: WorkerHalf(FitLoop, RoundStep),
    Regime.ADAPTIVE: WorkerHalf(QuotaLoop, None),
    Regime.LOCAL: WorkerHalf(LocalLoop, LocalCalls),
    Regime.LOCAL_IN_ROUNDS: WorkerHalf(LocalLoop, LocalRounds),
}
