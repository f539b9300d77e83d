"""Consistency modes from themselves, by name and by default; anything else says what is known."""

from __future__ import annotations

from typing import Any

import pytest

from tfps.consistency.modes import ALIASES, Asynchronous, BoundedStaleness, Synchronous, resolve
from tfps.errors import ConfigError


def test_nothing_is_asynchronous() -> None:
    assert resolve(None) == Asynchronous()


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_mode(alias: str) -> None:
    assert resolve(alias) is ALIASES[alias]


def test_a_mode_is_itself() -> None:
    for mode in (Asynchronous(), BoundedStaleness(2)):
        assert resolve(mode) is mode


@pytest.mark.parametrize("wrong", ["asyncronous", "", Asynchronous, 0, False, ["asynchronous"]])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(wrong)
    message = str(caught.value)
    assert message.startswith(f"consistency: received {wrong!r}, expected ")
    assert "'asynchronous'" in message


@pytest.mark.parametrize("steps", [-1, 2, 0.5, "1"])
def test_a_pipeline_of_another_length(steps: object) -> None:
    with pytest.raises(ConfigError, match=r"pipeline_steps: received .*, expected 0, or 1"):
        Asynchronous(pipeline_steps=steps)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [-1, 0.5, "1", None, True])
def test_a_bound_that_is_no_count(steps: object) -> None:
    with pytest.raises(ConfigError, match=r"bound_steps: received .*, expected a whole number"):
        BoundedStaleness(steps)  # type: ignore[arg-type]


def test_what_the_modes_ask_for() -> None:
    assert (Asynchronous().bound_steps, Asynchronous(pipeline_steps=1).pipeline_steps) == (None, 1)
    assert (BoundedStaleness(3).bound_steps, BoundedStaleness(3).pipeline_steps) == (3, 0)


@pytest.mark.parametrize(
    "make", [Asynchronous, Synchronous, lambda **options: BoundedStaleness(2, **options)]
)
def test_steps_of_a_warm_up(make: Any) -> None:
    assert make(warm_up_steps=3).warm_up_steps == 3
    with pytest.raises(ConfigError, match="warm_up_steps: received -1, expected a whole number"):
        make(warm_up_steps=-1)
