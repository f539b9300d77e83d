"""Keras's own tests of its trainer, each inside of a strategy's scope, with one worker."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

import keras
import pytest

import tfps
from tests.unit.numbers.keras.keras_trainer import (
    DIFFERENT,
    NOT_RUN,
    load_tests,
    names,
    reason_against,
)

# What `make test` runs; the others say the same of other arguments, or are about rare ones.
MAIN = (
    "test_callbacks_can_update_state_at_batch_boundary",
    "test_predict_preserve_order_50_non_jit",
    "test_stop_loop_fit",
)


@pytest.fixture(scope="module")
def strategy_options() -> dict[str, Any]:
    """Some tests compare the logs of each batch."""
    return {"placement": "round_robin", "batch_callbacks": "lock_step"}


@pytest.fixture(autouse=True)
def _filtered_traceback() -> Iterator[None]:
    """Undo what Keras's tests set for all later ones."""
    yield
    keras.config.enable_traceback_filtering()


def _parameter(name: str) -> Any:
    marks = [] if name in MAIN else [pytest.mark.repeats]
    for pattern, reason in DIFFERENT.items():
        if fnmatch.fnmatchcase(name, pattern):
            marks.append(pytest.mark.xfail(raises=AssertionError, reason=reason))
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", map(_parameter, names()))
def test_in_scope(name: str, strategy: tfps.ParameterServerStrategy) -> None:
    if reason := reason_against(name):
        pytest.skip(reason)
    case = load_tests()(name)
    case.setUp()  # before the scope, which ends with a session that is cleared
    with strategy.scope():
        getattr(case, name)()
    case.doCleanups()


@pytest.mark.skipif(not names(), reason="this version of Keras ships no tests")
def test_the_lists_name_tests() -> None:
    unknown = [one for one in (*MAIN, *NOT_RUN, *DIFFERENT) if not fnmatch.filter(names(), one)]
    assert unknown == []
