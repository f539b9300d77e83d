"""The consistency mode of a job file."""

from __future__ import annotations

import pytest

from tfps.config import parse
from tfps.consistency.modes import Asynchronous, BoundedStaleness
from tfps.job.consistency import consistency_problems, mode_of


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, Asynchronous()),
        ({"pipeline_steps": 1}, Asynchronous(pipeline_steps=1)),
        ({"mode": "bounded_staleness", "bound_steps": 0}, BoundedStaleness(0)),
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
    assert [problem.partition(":")[0] for problem in consistency_problems(config)] == [
        "consistency.pipeline_steps",
        "training.loop",
    ]
