"""What a divided model has saved, any other division goes on with, and one process too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.keras.comparison import (
    LABELS,
    LOCAL,
    TOLERANCE,
    X,
    assert_same,
    assert_same_state,
    fit,
)
from tests.cluster.shards.partitioned import PARTITIONERS, small, strategy_with
from tfps.launch import LocalCluster
from tfps.partitioners import Whole

pytestmark = pytest.mark.timeout(600)

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01),  # of undivided variables
}
DIVISIONS = {**PARTITIONERS, "whole": Whole()}


class Way(NamedTuple):
    """From one division to another."""

    before: str
    servers_before: int
    after: str
    servers_after: int

    def __str__(self) -> str:
        before = f"{self.before} on {self.servers_before}"
        return f"{before} to {self.after} on {self.servers_after}"


class Saved(NamedTuple):
    """What one training has left, in every form."""

    folder: Path
    weights: list[np.ndarray]
    slots: list[np.ndarray]
    served: np.ndarray


def _checkpoint(model: keras.Model) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def _save(model: keras.Model, folder: Path) -> Saved:
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    _checkpoint(model).write(str(folder / "checkpoint"))
    tfps.CheckpointManager(model, folder / "managed").save(background=False)
    model.export(str(folder / "exported"), verbose=False)
    slots = [v.numpy() for v in model.optimizer.variables]
    return Saved(folder, model.get_weights(), slots, model.predict(X, verbose=0))


def _restored(make: Callable[[], keras.Model], saved: Saved) -> dict[str, keras.Model]:
    """A model from every form that brings the optimizer too; all forms gave the same numbers."""
    whole = keras.saving.load_model(saved.folder / "model.keras")
    weights, checkpoint, managed = make(), make(), make()
    for model in (weights, checkpoint):
        model.optimizer.build(model.trainable_variables)
    weights.load_weights(saved.folder / "model.weights.h5")
    _checkpoint(checkpoint).read(str(saved.folder / "checkpoint")).assert_consumed()
    tfps.CheckpointManager(managed, saved.folder / "managed").restore_latest()
    for model in (whole, weights, checkpoint, managed):
        assert_same(model.get_weights(), saved.weights, tolerance=0.0)
        assert_same([v.numpy() for v in model.optimizer.variables], saved.slots, tolerance=0.0)
    return {"keras": whole, "checkpoint": checkpoint, "managed": managed}


def _uninterrupted(saved: Saved) -> keras.Model:
    """What one process goes on to; what was exported answers there as the model did."""
    with tf.device(LOCAL):
        exported = tf.saved_model.load(str(saved.folder / "exported"))
        np.testing.assert_allclose(exported.serve(X), saved.served, atol=TOLERANCE)
        model = keras.saving.load_model(saved.folder / "model.keras")
    fit(model)
    return model


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
        saved = _save(model, tmp_path)
    uninterrupted = _uninterrupted(saved)
    with (
        _servers(way.servers_after, tmp_path / "after") as cluster,
        strategy_with(cluster, DIVISIONS[way.after]) as strategy,
    ):
        with strategy.scope():
            restored = _restored(make, saved)
        for model in restored.values():
            fit(model)
            assert_same_state(model, uninterrupted)
    with tf.device(LOCAL):
        restored = _restored(make, saved)
    for model in restored.values():
        fit(model)
        assert_same_state(model, uninterrupted)


class Journey(NamedTuple):
    """A training that moves from cluster to cluster, each divided in another way.

    Args:
        optimizer: of the training.
        first: the position of the first division among all.
        stride: from one division to the next.
        servers: of each cluster.
    """

    optimizer: str
    first: int
    stride: int
    servers: tuple[int, ...]

    def stations(self) -> list[tuple[str, int]]:
        """Division and servers of each cluster."""
        names = list(DIVISIONS) if self.optimizer != "adafactor" else ["whole"]
        places = (self.first + self.stride * number for number in range(len(self.servers)))
        found = [names[place % len(names)] for place in places]
        return list(zip(found, self.servers, strict=True))


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


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda j: f"{j.optimizer} from {j.first}")
def test_a_training_moves_on(journey: Journey, tmp_path: Path) -> None:
    """At each station from another form of what the last one has saved."""

    def make() -> keras.Model:
        return small(OPTIMIZERS[journey.optimizer])

    keras.utils.set_random_seed(1)
    forms = itertools.cycle(["keras", "checkpoint", "managed"])
    saved: Saved | None = None
    uninterrupted: keras.Model | None = None
    for number, (name, servers) in enumerate(journey.stations()):
        folder = tmp_path / str(number)
        with (
            _servers(servers, folder / "logs") as cluster,
            strategy_with(cluster, DIVISIONS[name]) as strategy,
        ):
            with strategy.scope():
                model = _restored(make, saved)[next(forms)] if saved else make()
            fit(model)
            if uninterrupted is not None:
                assert_same_state(model, uninterrupted)
            saved = _save(model, folder)
        uninterrupted = _uninterrupted(saved)
    assert saved is not None
    with tf.device(LOCAL):
        model = _restored(make, saved)[next(forms)]
    fit(model)
    assert_same_state(model, uninterrupted)
