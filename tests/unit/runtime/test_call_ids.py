"""The optimizer calls of scheduled functions that add to the same sums."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.runtime.coordinator.call_ids import OptimizerCallIds
from tfps.runtime.program.schedule import LocalTraining, PeriodEnd

ADAM, SGD = SimpleNamespace(), SimpleNamespace()
WEIGHTS = (SimpleNamespace(), SimpleNamespace())


def test_traces_of_a_call_are_one_unit() -> None:
    call_ids = OptimizerCallIds()
    number = call_ids.get_number(OptimizerCall(ADAM, WEIGHTS), layouts=0)
    assert call_ids.get_number(OptimizerCall(ADAM, tuple(WEIGHTS)), layouts=0) == number
    others = [
        call_ids.get_number(OptimizerCall(SGD, WEIGHTS), layouts=0),
        call_ids.get_number(OptimizerCall(ADAM, WEIGHTS[:1]), layouts=0),
        call_ids.get_number(OptimizerCall(ADAM, WEIGHTS), layouts=1),
    ]
    assert len({number, *others}) == 4


def _period_end(*optimizers: Any, weights: tuple[Any, ...] = WEIGHTS) -> PeriodEnd:
    local = LocalTraining(
        period_steps=4,
        elasticity=None,
        calls=tuple(OptimizerCall(optimizer, WEIGHTS) for optimizer in optimizers),
        slots=(),
        counts=(),
        rates=(),
        adds_counts=True,
    )
    return PeriodEnd(local, weights)


def test_traces_of_a_period_are_one_unit() -> None:
    """Each trace makes new stand-ins of the optimizers; each optimizer counts once."""
    call_ids = OptimizerCallIds()
    number = call_ids.get_number(_period_end(ADAM, SGD), layouts=0)
    assert call_ids.get_number(_period_end(ADAM, SGD, ADAM), layouts=0) == number
    others = [
        call_ids.get_number(_period_end(ADAM), layouts=0),
        call_ids.get_number(_period_end(ADAM, SGD, weights=WEIGHTS[:1]), layouts=0),
        call_ids.get_number(_period_end(ADAM, SGD), layouts=1),
    ]
    assert len({number, *others}) == 4
