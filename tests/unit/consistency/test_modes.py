"""Consistency modes from themselves, by name and by default; anything else says what is known."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from tests.messages import raises
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode
from tfps.consistency.modes import (
    ALIASES,
    Asynchronous,
    BoundedStaleness,
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
    for mode in (Asynchronous(), BoundedStaleness(2)):
        assert resolve(mode) is mode


@pytest.mark.parametrize("wrong", ["asyncronous", "", Asynchronous, 0, False, ["asynchronous"]])
def test_anything_else_is_refused(wrong: Any) -> None:
    with raises(ConfigError, "consistency", received=repr(wrong), remedy="'asynchronous'"):
        resolve(wrong)


@pytest.mark.parametrize("steps", [-1, 0.5, "1", None, True])
def test_a_bound_that_is_no_count(steps: object) -> None:
    with raises(ConfigError, "bound_steps", received=repr(steps), remedy="whole number"):
        BoundedStaleness(steps)  # type: ignore[arg-type]


def test_what_the_modes_ask_for() -> None:
    assert (Asynchronous().bound_steps, BoundedStaleness(3).bound_steps) == (None, 3)


EACH_MODE = [
    Asynchronous(),
    Synchronous(1, 2),
    BoundedStaleness(2, 3),
    LocalSteps(8, synchronous_periods=True),
]
ASKED = ["bound_steps", "backup_workers", "warm_up_steps"]


def test_what_modes_ask_for_is_written_once() -> None:
    """A mode spells out what is a setting of it or follows from one, and nothing else."""
    derived = {}
    for mode in EACH_MODE:
        assert isinstance(mode, Mode)
        own = {name for name in ASKED if isinstance(vars(type(mode)).get(name), property)}
        derived[type(mode)] = own
    assert derived == {
        Asynchronous: set(),
        Synchronous: set(),
        BoundedStaleness: set(),
        LocalSteps: {"backup_workers"},
    }


@pytest.mark.parametrize(
    ("mode", "asked", "text"),
    [
        (EACH_MODE[0], (None, None, 0), "Asynchronous(warm_up_steps=0)"),
        (EACH_MODE[1], (None, 1, 2), "Synchronous(backup_workers=1, warm_up_steps=2)"),
        (EACH_MODE[2], (2, None, 3), "BoundedStaleness(bound_steps=2, warm_up_steps=3)"),
        (
            EACH_MODE[3],
            (None, 0, 0),
            "LocalSteps(period_steps=8, synchronous_periods=True, elasticity=None, "
            "warm_up_steps=0)",
        ),
        (LocalSteps(8), (None, None, 0), None),
    ],
)
def test_a_mode_is_a_frozen_value(mode: Any, asked: tuple[Any, ...], text: str | None) -> None:
    assert tuple(getattr(mode, name) for name in ASKED) == asked
    assert text is None or repr(mode) == text
    for twin in (pickle.loads(pickle.dumps(mode)), copy.deepcopy(mode), dataclasses.replace(mode)):
        assert (type(twin), twin, hash(twin)) == (type(mode), mode, hash(mode))
    assert mode != dataclasses.replace(mode, warm_up_steps=9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mode.warm_up_steps = 1


def test_constructors_take_their_settings_alone() -> None:
    parameters = {type(mode): list(inspect.signature(type(mode)).parameters) for mode in EACH_MODE}
    assert parameters == {
        Asynchronous: ["warm_up_steps"],
        Synchronous: ["backup_workers", "warm_up_steps"],
        BoundedStaleness: ["bound_steps", "warm_up_steps"],
        LocalSteps: ["period_steps", "synchronous_periods", "elasticity", "warm_up_steps"],
    }
    with raises(TypeError, "bound_steps"):
        BoundedStaleness()  # type: ignore[call-arg]
    with raises(TypeError, "positional"):  # it was a number of steps to pipeline
        Asynchronous(1)  # type: ignore[call-arg]


def test_all_but_rounds_apply_each_gradient() -> None:
    for alias, mode in ALIASES.items():
        assert applies_each_gradient(mode) == (alias != "synchronous")


@pytest.mark.parametrize(
    "make", [Asynchronous, Synchronous, lambda **options: BoundedStaleness(2, **options)]
)
def test_steps_of_a_warm_up(make: Any) -> None:
    assert make(warm_up_steps=3).warm_up_steps == 3
    with raises(ConfigError, "warm_up_steps", received=-1, remedy="whole number"):
        make(warm_up_steps=-1)
