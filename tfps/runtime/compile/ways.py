"""Which loop, and which step, the schedule of a program takes: one line for each way."""

from __future__ import annotations

from typing import NamedTuple

from tfps.runtime.program.schedule import Way
from tfps.runtime.worker.fit_local import LocalLoop
from tfps.runtime.worker.fit_loop import FitLoop
from tfps.runtime.worker.fit_pipelined import PipelinedLoop
from tfps.runtime.worker.fit_quota import QuotaLoop
from tfps.runtime.worker.function_local import LocalCalls, LocalRounds
from tfps.runtime.worker.function_member import BoundedStep, RoundStep
from tfps.runtime.worker.function_step import FunctionStep


class Traced(NamedTuple):
    """What traces the worker's half of a program.

    Args:
        loop: of a program of `fit`, which makes its steps.
        function_step: of a scheduled function; None: such functions are refused.
    """

    loop: type[FitLoop]
    function_step: type[FunctionStep] | None


WAYS = {
    Way.AT_ONCE: Traced(FitLoop, FunctionStep),
    Way.BOUNDED: Traced(FitLoop, BoundedStep),
    Way.PIPELINED: Traced(PipelinedLoop, None),
    Way.IN_ROUNDS: Traced(FitLoop, RoundStep),
    Way.ADAPTIVE: Traced(QuotaLoop, None),
    Way.LOCAL: Traced(LocalLoop, LocalCalls),
    Way.LOCAL_IN_ROUNDS: Traced(LocalLoop, LocalRounds),
}
