"""Types and docstrings of the public classes, as an editor and help() show them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest

import tfps

CLASSES = [
    tfps.CheckpointManager,
    tfps.ClusterCoordinator,
    tfps.LocalCluster,
    tfps.ParameterServerStrategy,
    tfps.SidecarEvaluator,
]
# Beyond what TensorFlow's own class of that name offers.
STRATEGY = {
    "alive_workers",
    "close",
    "cluster",
    "coordinator",
    "plan",
    "pull",
    "pull_rows",
    "push",
    "push_rows",
    "stats",
    "tasks",
    "update_operations",
    "worker_rates",
}


def _methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(kind).items():
        is_ours = inspect.isfunction(member) and member.__module__.startswith("tfps.")
        if is_ours and (name == "__init__" or not name.startswith("_")):
            yield name, member


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_parameter_has_a_type(kind: type) -> None:
    for name, method in _methods(kind):
        hints = get_type_hints(method)
        for parameter in list(inspect.signature(method).parameters)[1:]:
            assert hints[parameter] is not Any, f"{kind.__name__}.{name}({parameter})"
        assert hints["return"] is not Any, f"{kind.__name__}.{name}() -> Any"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_help_shows_our_words(kind: type) -> None:
    # Python's own words for an __init__ without any send the reader to the class, which is right.
    theirs = {inspect.getdoc(vars(base).get("__init__")) for base in kind.__mro__[1:-1]}
    assert inspect.getdoc(kind.__init__) not in theirs - {None}  # type: ignore[misc]
    for name, method in _methods(kind):
        assert method.__doc__ or name == "__init__", f"{kind.__name__}.{name}"


def test_the_strategy_offers_nothing_that_is_not_for_users() -> None:
    offered = {name for name in dir(tfps.ParameterServerStrategy) if not name.startswith("_")}
    base = tfps.ParameterServerStrategy.__mro__[1]
    assert offered - set(dir(base)) == STRATEGY
