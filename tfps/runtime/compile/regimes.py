"""Maps each regime of a schedule to the classes that trace loops and steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from tfps.runtime.program.schedule import Regime
from tfps.runtime.worker.fit_local import LocalStep
from tfps.runtime.worker.fit_loop import FitLoop
from tfps.runtime.worker.fit_mirrored import MirroredLoop, MirroredStep
from tfps.runtime.worker.fit_period import PeriodLoop
from tfps.runtime.worker.fit_step import FitStep
from tfps.runtime.worker.function_local import LocalCalls, LocalRounds
from tfps.runtime.worker.function_member import BoundedStep, RoundStep
from tfps.runtime.worker.function_step import FunctionStep


class WorkerHalf(NamedTuple):
    """The classes that trace the worker's half of a program."""

    loop: type[FitLoop[Any]]  # the loop of a program of `fit`
    fit_step: type[FitStep]  # the steps of that loop
    function_step: type[FunctionStep] | None  # None: scheduled functions are refused


REGIMES = {
    Regime.AT_ONCE: WorkerHalf(FitLoop, FitStep, FunctionStep),
    Regime.BOUNDED: WorkerHalf(FitLoop, FitStep, BoundedStep),
    Regime.IN_ROUNDS: WorkerHalf(FitLoop, FitStep, RoundStep),
    Regime.MIRRORED: WorkerHalf(MirroredLoop, MirroredStep, None),
    Regime.LOCAL: WorkerHalf(PeriodLoop, LocalStep, LocalCalls),
    Regime.LOCAL_IN_ROUNDS: WorkerHalf(PeriodLoop, LocalStep, LocalRounds),
}
