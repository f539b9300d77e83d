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

pytestmark = pytest.mark.timeout(400)

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


def _assert_restored(make: Callable[[], keras.Model], saved: Saved, *, scope: Any) -> None:
    """Every form gives the same numbers, and the training goes on the same way."""
    with scope():
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
    with tf.device(LOCAL):
        exported = tf.saved_model.load(str(saved.folder / "exported"))
        np.testing.assert_allclose(exported.serve(X), saved.served, atol=TOLERANCE)
    with tf.device(LOCAL):
        uninterrupted = keras.saving.load_model(saved.folder / "model.keras")
    fit(uninterrupted)
    for model in (whole, checkpoint, managed):
        fit(model)
        assert_same_state(model, uninterrupted)


@contextmanager
def _servers(number: int, log_dir: Path) -> Iterator[LocalCluster]:
    with LocalCluster(workers=1, ps=number, log_dir=log_dir) as cluster:
        yield cluster


def _pairs() -> list[Any]:
    """Every way from one partitioner and number of servers to another; the quick ones are few."""
    names, cases = list(DIVISIONS), []
    for number, (name, optimizer) in enumerate(itertools.product(names, OPTIMIZERS)):
        if optimizer == "adafactor" and name != "whole":
            continue
        for before, after in itertools.product((1, 2, 3), repeat=2):
            other = names[(number + before + after) % len(names)]
            other = "whole" if optimizer == "adafactor" else other
            marks = [] if (name, before, after, optimizer) in QUICK else [pytest.mark.slow]
            way = Way(name, before, other, after)
            cases.append(pytest.param(way, optimizer, marks=marks, id=f"{way}, {optimizer}"))
    return cases


QUICK = {("hash", 2, 3, "adam"), ("fixed", 3, 1, "sgd"), ("whole", 1, 2, "adafactor")}


@pytest.mark.parametrize(("way", "optimizer"), _pairs())
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
    with (
        _servers(way.servers_after, tmp_path / "after") as cluster,
        strategy_with(cluster, DIVISIONS[way.after]) as strategy,
    ):
        _assert_restored(make, saved, scope=strategy.scope)
    _assert_restored(make, saved, scope=lambda: tf.device(LOCAL))
