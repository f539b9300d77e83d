"""`tfps.LocalSteps`: what it is made with."""

from __future__ import annotations

from typing import Any

import pytest

import tfps
from tfps.consistency import modes
from tfps.consistency.local_steps import period_steps_of
from tfps.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"period_steps": 0}, "period_steps: received 0, expected a whole number from 1"),
        ({"period_steps": True}, "period_steps: received True"),
        ({"period_steps": 2, "elasticity": 1}, "elasticity: received 1, expected a number between"),
        (
            {"period_steps": 2, "elasticity": 0.1, "synchronous_periods": True},
            "received 0.1 with synchronous_periods=True; expected None",
        ),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
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
