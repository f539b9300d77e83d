"""Files of a divided model in every form, and trainings that continue from them elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import TOLERANCE, X, assert_same, assert_same_state, fit
from tests.unit.numbers.partitioned import PARTITIONERS, small, strategy_with
from tfps.partitioners import Whole

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01),  # of undivided variables
}
DIVISIONS = {**PARTITIONERS, "whole": Whole()}


class SavedState(NamedTuple):
    """The state that one training has left, in every form."""

    folder: Path
    weights: list[np.ndarray]
    slots: list[np.ndarray]
    served: np.ndarray


def as_checkpoint(model: keras.Model) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def save(model: keras.Model, folder: Path) -> SavedState:
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    as_checkpoint(model).write(str(folder / "checkpoint"))
    tfps.CheckpointManager(model, folder / "managed").save(background=False)
    model.export(str(folder / "exported"), verbose=False)
    slots = [v.numpy() for v in model.optimizer.variables]
    return SavedState(folder, model.get_weights(), slots, model.predict(X, verbose=0))


def restored_from(make: Callable[[], keras.Model], saved: SavedState) -> dict[str, keras.Model]:
    """A model from every form that brings the optimizer too; all forms gave the same numbers."""
    whole = keras.saving.load_model(saved.folder / "model.keras")
    weights, checkpoint, managed = make(), make(), make()
    for model in (weights, checkpoint):
        model.optimizer.build(model.trainable_variables)
    weights.load_weights(saved.folder / "model.weights.h5")
    as_checkpoint(checkpoint).read(str(saved.folder / "checkpoint")).assert_consumed()
    tfps.CheckpointManager(managed, saved.folder / "managed").restore_latest()
    for model in (whole, weights, checkpoint, managed):
        assert_same(model.get_weights(), saved.weights, tolerance=0.0)
        assert_same([v.numpy() for v in model.optimizer.variables], saved.slots, tolerance=0.0)
    return {"keras": whole, "checkpoint": checkpoint, "managed": managed}


def uninterrupted_from(saved: SavedState, *, local: str) -> keras.Model:
    """Check that the exported model serves the same in one process; train the saved one on."""
    with tf.device(local):
        exported = tf.saved_model.load(str(saved.folder / "exported"))
        np.testing.assert_allclose(exported.serve(X), saved.served, atol=TOLERANCE)
        model = keras.saving.load_model(saved.folder / "model.keras")
    fit(model)
    return model


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

    def travel(
        self,
        servers: Callable[[int, Path], AbstractContextManager[Any]],
        *,
        local: str,
        folder: Path,
    ) -> None:
        """Train, at each station from another form of what the last one has saved.

        Args:
            servers: opens a cluster with that number of servers, and a folder for its logs.
            local: the device of this process.
            folder: for what is saved.
        """

        def make() -> keras.Model:
            return small(OPTIMIZERS[self.optimizer])

        keras.utils.set_random_seed(1)
        forms = itertools.cycle(["keras", "checkpoint", "managed"])
        saved: SavedState | None = None
        uninterrupted: keras.Model | None = None
        for number, (name, count) in enumerate(self.stations()):
            place = folder / str(number)
            place.mkdir()
            with (
                servers(count, place / "logs") as cluster,
                strategy_with(cluster, DIVISIONS[name]) as strategy,
            ):
                with strategy.scope():
                    model = restored_from(make, saved)[next(forms)] if saved else make()
                fit(model)
                if uninterrupted is not None:
                    assert_same_state(model, uninterrupted)
                saved = save(model, place)
            uninterrupted = uninterrupted_from(saved, local=local)
        assert saved is not None
        with tf.device(local):
            model = restored_from(make, saved)[next(forms)]
        fit(model)
        assert_same_state(model, uninterrupted)
