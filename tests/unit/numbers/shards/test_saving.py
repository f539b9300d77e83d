"""A training goes on with every other division of its model, and number of servers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.unit.numbers.comparison import LABELS, LOCAL, X, assert_same_state, fit
from tests.unit.numbers.partitioned import small, strategy_with
from tests.unit.numbers.saved import (
    DIVISIONS,
    OPTIMIZERS,
    Journey,
    restored_from,
    save,
    uninterrupted_from,
)
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)

# Every number of servers after every other one, each once.
ALL_MOVES = (1, 1, 2, 2, 3, 3, 1, 3, 2, 1)
JOURNEYS = [
    Journey("sgd", 0, 1, ALL_MOVES),
    Journey("adam", 2, 1, ALL_MOVES),
    Journey("adam", 7, 5, ALL_MOVES),
    Journey("adafactor", 0, 1, (1, 3, 2, 1)),
]
SHORT = Journey("adam", 4, 3, (2, 1, 3))


def test_the_journeys_have_every_pair() -> None:
    """Division and optimizer, division and servers, servers before and after."""
    stations = [(journey, *station) for journey in JOURNEYS for station in journey.stations()]
    divided = {(j.optimizer, name) for j, name, _ in stations if j.optimizer != "adafactor"}
    assert divided == set(itertools.product(["sgd", "adam"], DIVISIONS))
    assert {(name, servers) for _, name, servers in stations} == set(
        itertools.product(DIVISIONS, (1, 2, 3))
    )
    for journey in JOURNEYS[:3]:
        moves = set(itertools.pairwise(journey.servers))
        assert moves == set(itertools.product((1, 2, 3), repeat=2))


@contextmanager
def _servers(number: int, _: Path) -> Iterator[InProcessCluster]:
    with InProcessCluster(workers=1, ps=number) as cluster:
        yield cluster


@pytest.mark.repeats
@pytest.mark.parametrize(
    "journey", [*JOURNEYS, SHORT], ids=lambda j: f"{j.optimizer} from {j.first}"
)
def test_a_training_moves_on(journey: Journey, tmp_path: Path) -> None:
    """Each station goes on from another form of what the last one has saved."""
    journey.travel(_servers, local=LOCAL, folder=tmp_path)


def _beginnings() -> list[Any]:
    """Every division under every optimizer that can have it, on every number of servers."""
    pairs = itertools.product(enumerate(itertools.product(DIVISIONS, OPTIMIZERS)), (1, 2, 3))
    return [
        pytest.param(name, optimizer, servers, number, id=f"{name} on {servers}, {optimizer}")
        for (number, (name, optimizer)), servers in pairs
        if optimizer != "adafactor" or name == "whole"
    ]


@pytest.mark.repeats
@pytest.mark.parametrize(("name", "optimizer", "servers", "number"), _beginnings())
def test_other_divisions_go_on(
    name: str, optimizer: str, servers: int, number: int, tmp_path: Path
) -> None:
    """One on each number of servers, and one process, each trained from another form."""

    def make() -> keras.Model:
        return small(OPTIMIZERS[optimizer])

    keras.utils.set_random_seed(1)
    with _servers(servers, tmp_path) as cluster, strategy_with(cluster, DIVISIONS[name]) as before:
        with before.scope():
            model = make()
        fit(model, X, LABELS)
        saved = save(model, tmp_path)
    uninterrupted = uninterrupted_from(saved, local=LOCAL)
    names = list(DIVISIONS) if optimizer != "adafactor" else ["whole"]
    forms = ["keras", "checkpoint", "managed"]
    for servers_after in (1, 2, 3):
        other = names[(number + servers + servers_after) % len(names)]
        with (
            _servers(servers_after, tmp_path) as cluster,
            strategy_with(cluster, DIVISIONS[other]) as after,
        ):
            with after.scope():
                model = restored_from(make, saved)[forms[servers_after % 3]]
            fit(model)
            assert_same_state(model, uninterrupted)
    with tf.device(LOCAL):
        model = restored_from(make, saved)[forms[number % 3]]
    fit(model)
    assert_same_state(model, uninterrupted)
