"""Consistency modes from themselves, by name and by default; anything else says what is known."""

from __future__ import annotations

from typing import Any

import pytest

from tfps.consistency.modes import (
    ALIASES,
    Asynchronous,
    BoundedStaleness,
    DynamicBoundedStaleness,
    applies_each_gradient,
    resolve,
)
from tfps.consistency.synchronous import Synchronous
from tfps.errors import ConfigError


def test_nothing_is_asynchronous() -> None:
    assert resolve(None) == Asynchronous()


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_mode(alias: str) -> None:
    assert resolve(alias) is ALIASES[alias]


def test_a_mode_is_itself() -> None:
    for mode in (Asynchronous(), BoundedStaleness(2), DynamicBoundedStaleness(1, 4)):
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


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((-1, 4), ["min_bound_steps: received -1, expected a whole number"]),
        ((0.5, True), ["min_bound_steps: received 0.5", "max_bound_steps: received True"]),
        ((4, 3), ["max_bound_steps: received 3 with min_bound_steps=4; expected as many"]),
    ],
)
def test_a_range_that_is_none(bounds: tuple[Any, Any], expected: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        DynamicBoundedStaleness(*bounds)
    found = caught.value.problems
    assert len(found) == len(expected)
    assert all(map(str.startswith, found, expected))


def test_what_the_modes_ask_for() -> None:
    assert (Asynchronous().bound_steps, Asynchronous(pipeline_steps=1).pipeline_steps) == (None, 1)
    assert (BoundedStaleness(3).bound_steps, BoundedStaleness(3).pipeline_steps) == (3, 0)
    dynamic = DynamicBoundedStaleness(2, 8)
    assert (dynamic.bound_steps, dynamic.extra_steps, dynamic.pipeline_steps) == (2, 6, 0)
    assert [mode.extra_steps for mode in ALIASES.values()] == [0, 0, 0, 12]


def test_all_but_rounds_apply_each_gradient() -> None:
    for alias, mode in ALIASES.items():
        assert applies_each_gradient(mode) == (alias != "synchronous")


@pytest.mark.parametrize(
    "make",
    [
        Asynchronous,
        Synchronous,
        lambda **options: BoundedStaleness(2, **options),
        lambda **options: DynamicBoundedStaleness(2, 4, **options),
    ],
)
def test_steps_of_a_warm_up(make: Any) -> None:
    assert make(warm_up_steps=3).warm_up_steps == 3
    with pytest.raises(ConfigError, match="warm_up_steps: received -1, expected a whole number"):
        make(warm_up_steps=-1)


@pytest.mark.parametrize("batches", [0, -1, 0.5, "4", True])
def test_a_round_without_batches(batches: Any) -> None:
    with pytest.raises(ConfigError, match=r"adaptive_batches: received .*, expected a whole numbe"):
        Synchronous(adaptive_batches=batches)
