"""The consistency mode of a job file."""

from __future__ import annotations

import pytest

from tfps.config import parse
from tfps.consistency.modes import Asynchronous, BoundedStaleness, Synchronous
from tfps.job.consistency import cluster_problems, consistency_problems, mode_of


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, Asynchronous()),
        ({"pipeline_steps": 1}, Asynchronous(pipeline_steps=1)),
        ({"mode": "bounded_staleness", "bound_steps": 0}, BoundedStaleness(0)),
        ({"mode": "synchronous", "backup_workers": 1}, Synchronous(1)),
    ],
)
def test_modes(values, mode):
    config = parse({"consistency": values})
    assert mode_of(config.consistency) == mode
    assert consistency_problems(config) == []


def test_what_does_not_go_together_is_named():
    config = parse(
        {
            "training": {"loop": "custom"},
            "consistency": {"mode": "bounded_staleness", "pipeline_steps": 1},
        }
    )
    (problem,) = consistency_problems(config)
    assert problem.startswith("consistency.pipeline_steps: received 1 with bounded_staleness")


@pytest.mark.parametrize(
    ("mode", "backup_workers", "expected"),
    [
        ("asynchronous", 1, "received 1 with asynchronous; expected 0"),
        ("synchronous", 2, "received backup_workers=2 with 2 workers; expected fewer"),
    ],
)
def test_backup_workers(mode, backup_workers, expected):
    config = parse({"consistency": {"mode": mode, "backup_workers": backup_workers}})
    (problem,) = [*consistency_problems(config), *cluster_problems(config)]
    assert problem.startswith("consistency.backup_workers: ")
    assert expected in problem


def test_momenta_of_workers_need_gradients_of_workers():
    values = {"training": {"optimizer": {"name": "dana"}}}
    assert consistency_problems(parse(values)) == []
    (problem,) = consistency_problems(parse({**values, "consistency": {"mode": "synchronous"}}))
    assert problem.startswith(
        "training.optimizer.name: received 'dana' with consistency.mode = 'synchronous'; expected "
        "'asynchronous' or 'bounded_staleness'"
    )
