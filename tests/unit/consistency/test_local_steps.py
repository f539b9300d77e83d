"""`tfps.LocalSteps`: what it is made with."""

from __future__ import annotations

from typing import Any

import pytest

import tfps
from tests.messages import raises
from tfps.consistency import modes
from tfps.consistency.local_steps import period_steps_of
from tfps.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "key", "expected"),
    [
        ({"period_steps": 0}, "period_steps", "whole number from 1"),
        ({"period_steps": True}, "period_steps", "whole number from 1"),
        ({"period_steps": 2, "elasticity": 1}, "elasticity", "between 0 and 1"),
        (
            {"period_steps": 2, "elasticity": 0.1, "synchronous_periods": True},
            "elasticity",
            "synchronous_periods=True, expected None",
        ),
    ],
)
def test_what_is_refused(options: dict[str, Any], key: str, expected: str) -> None:
    with raises(ConfigError, f"{key}: ", received=options[key], remedy=expected):
        tfps.LocalSteps(**options)


def test_rounds_where_workers_meet() -> None:
    assert tfps.LocalSteps(4, synchronous_periods=True).backup_workers == 0
    assert tfps.LocalSteps(4).backup_workers is None


def test_it_is_a_mode() -> None:
    mode = tfps.LocalSteps(16)
    assert modes.resolve(mode) is mode
    assert not modes.applies_each_gradient(mode)


@pytest.mark.parametrize(
    ("mode", "steps"), [(tfps.LocalSteps(16), 16), (tfps.Asynchronous(), 1), (None, 1)]
)
def test_steps_of_a_period(mode: Any, steps: int) -> None:
    assert period_steps_of(mode) == steps
