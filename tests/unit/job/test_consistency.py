"""The consistency mode of a job file."""

from __future__ import annotations

import pytest

from tests.messages import check_message
from tfps.config import parse
from tfps.config.schema import OWN_OPTIMIZERS
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.modes import Asynchronous, BoundedStaleness
from tfps.consistency.optimizer_limits import average_problem, together_problem
from tfps.consistency.synchronous import Synchronous
from tfps.job.consistency import consistency_problems, mode_of
from tfps.job.optimizer import optimizer_class
from tfps.optimizers.worker_state import WorkerStateMixin
from tfps.strategy.cluster_size import ClusterSize, size_problems


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, Asynchronous()),
        ({"warm_up_steps": 3}, Asynchronous(warm_up_steps=3)),
        ({"mode": "bounded_staleness", "bound_steps": 0}, BoundedStaleness(0)),
        ({"mode": "synchronous", "backup_workers": 1}, Synchronous(1)),
        ({"mode": "local_steps", "period_steps": 4}, LocalSteps(4)),
        ({"mode": "synchronous", "warm_up_steps": 9}, Synchronous(warm_up_steps=9)),
        (
            {"mode": "local_steps", "synchronous_periods": True},
            LocalSteps(16, synchronous_periods=True),
        ),
        ({"mode": "local_steps", "elasticity": 0.3}, LocalSteps(16, elasticity=0.3)),
    ],
)
def test_modes(values, mode):
    config = parse({"consistency": values})
    assert mode_of(config.consistency) == mode
    assert consistency_problems(config) == []


@pytest.mark.parametrize(
    ("values", "name", "received"),
    [
        (
            {"mode": "local_steps", "elasticity": 0.3, "synchronous_periods": True},
            "elasticity",
            "0.3 with synchronous_periods = true",
        ),
        ({"mode": "synchronous", "elasticity": 0.3}, "elasticity", "0.3 with mode = 'synchronous'"),
        ({"synchronous_periods": True}, "synchronous_periods", "true with mode = 'asynchronous'"),
    ],
)
def test_options_of_local_steps(values, name, received):
    (problem,) = consistency_problems(parse({"consistency": values}))
    check_message(problem, f"consistency.{name}: ", received=received, remedy="local_steps")


@pytest.mark.parametrize(
    ("mode", "backup_workers", "received", "remedy"),
    [
        ("asynchronous", 1, "received 1 with asynchronous", "synchronous"),
        ("synchronous", 2, "backup_workers=2 with 2 workers", "fewer"),
    ],
)
def test_backup_workers(mode, backup_workers, received, remedy):
    config = parse({"consistency": {"mode": mode, "backup_workers": backup_workers}})
    size = ClusterSize(workers=2, servers=1)
    (problem,) = [
        *consistency_problems(config),
        *size_problems(mode=mode_of(config.consistency), placement=None, size=size),
    ]
    check_message(problem, "consistency.backup_workers: ", received=received, remedy=remedy)


@pytest.mark.parametrize(("name", "kind"), OWN_OPTIMIZERS.items())
def test_momenta_of_workers_need_gradients_of_workers(name, kind):
    values = {"training": {"optimizer": {"name": name}}}
    assert consistency_problems(parse(values)) == []
    (problem,) = consistency_problems(parse({**values, "consistency": {"mode": "synchronous"}}))
    assert problem == f"training.optimizer.name: {together_problem(kind)}"
    assert issubclass(optimizer_class(name), WorkerStateMixin)


@pytest.mark.parametrize("values", [{"mode": "local_steps"}, {"warm_up_steps": 1}])
def test_workers_that_run_the_optimizer_average_no_weights(values):
    optimizer = {"training": {"optimizer": {"use_ema": True}}}
    assert consistency_problems(parse(optimizer)) == []
    (problem,) = consistency_problems(parse({**optimizer, "consistency": values}))
    assert problem == f"training.optimizer.use_ema: {average_problem()}"
