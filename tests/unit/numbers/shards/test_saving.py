"""A training goes on with every other division of its model, and number of servers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.numbers.comparison import LOCAL
from tests.unit.numbers.saved import DIVISIONS, Journey
from tfps.testing import OneProcess

# Every number of servers after every other one, each once.
ALL_MOVES = (1, 1, 2, 2, 3, 3, 1, 3, 2, 1)
JOURNEYS = [
    Journey("sgd", 0, 1, ALL_MOVES),
    Journey("adam", 2, 1, ALL_MOVES),
    Journey("adam", 7, 5, ALL_MOVES),
    Journey("adafactor", 0, 1, (1, 3, 2, 1)),
]


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
def _servers(number: int, _: Path) -> Iterator[OneProcess]:
    with OneProcess(workers=1, ps=number) as cluster:
        yield cluster


@pytest.mark.quick("adam from 7")
@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda j: f"{j.optimizer} from {j.first}")
def test_a_training_moves_on(journey: Journey, tmp_path: Path) -> None:
    """At each station from another form of what the last one has saved."""
    journey.travel(_servers, local=LOCAL, folder=tmp_path)
