"""What a divided model has saved, any other division goes on with, and one process too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

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
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(600)


class Way(NamedTuple):
    """From one division to another."""

    before: str
    servers_before: int
    after: str
    servers_after: int

    def __str__(self) -> str:
        before = f"{self.before} on {self.servers_before}"
        return f"{before} to {self.after} on {self.servers_after}"


@contextmanager
def _servers(number: int, log_dir: Path) -> Iterator[LocalCluster]:
    with LocalCluster(workers=1, ps=number, log_dir=log_dir) as cluster:
        yield cluster


def _product() -> list[Any]:
    """Every way from one partitioner and number of servers to another."""
    names, cases = list(DIVISIONS), []
    for number, (name, optimizer) in enumerate(itertools.product(names, OPTIMIZERS)):
        if optimizer == "adafactor" and name != "whole":
            continue
        for before, after in itertools.product((1, 2, 3), repeat=2):
            other = names[(number + before + after) % len(names)]
            other = "whole" if optimizer == "adafactor" else other
            way = Way(name, before, other, after)
            cases.append(pytest.param(way, optimizer, id=f"{way}, {optimizer}"))
    return cases


@pytest.mark.slow
@pytest.mark.parametrize(("way", "optimizer"), _product())
def test_another_division_goes_on(way: Way, optimizer: str, tmp_path: Path) -> None:
    def make() -> keras.Model:
        return small(OPTIMIZERS[optimizer])

    keras.utils.set_random_seed(1)
    with (
        _servers(way.servers_before, tmp_path / "before") as cluster,
        strategy_with(cluster, DIVISIONS[way.before]) as strategy,
    ):
        with strategy.scope():
            model = make()
        fit(model, X, LABELS)
        saved = save(model, tmp_path)
    uninterrupted = uninterrupted_from(saved, local=LOCAL)
    with (
        _servers(way.servers_after, tmp_path / "after") as cluster,
        strategy_with(cluster, DIVISIONS[way.after]) as strategy,
    ):
        with strategy.scope():
            restored = restored_from(make, saved)
        for model in restored.values():
            fit(model)
            assert_same_state(model, uninterrupted)
    with tf.device(LOCAL):
        restored = restored_from(make, saved)
    for model in restored.values():
        fit(model)
        assert_same_state(model, uninterrupted)


def test_a_training_moves_on(tmp_path: Path) -> None:
    """At each station from another form of what the last one has saved."""
    Journey("adam", 2, 1, (1, 3)).travel(_servers, local=LOCAL, folder=tmp_path)
