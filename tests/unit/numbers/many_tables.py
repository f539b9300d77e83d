"""A recommender's tables: one for each feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import tfps
from tests.unit.numbers.comparison import BATCH, LABELS, cross_entropy, fit

TABLES, ROWS, WIDTH = 26, 40, 4
FEATURES = np.random.default_rng(3).integers(0, ROWS, size=(64, TABLES)).astype("int32")
STEPS = len(FEATURES) // BATCH
JOIN = 1  # of a run of `fit`, `evaluate` or `predict`, with each server
PULL = LOOK_UP = PUSH = 1
TOTALS = 1  # where one worker goes on with the state of metrics: the first server has it


def many_tables(optimizer: Callable[[], Any], *, tables: int = TABLES) -> keras.Model:
    """A model of tables of two widths and many lengths."""
    inputs = keras.Input((TABLES,), dtype="int32")
    rows = [
        keras.layers.Embedding(ROWS + k, WIDTH if k % 3 else WIDTH + 1)(inputs[:, k])
        for k in range(tables)
    ]
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Concatenate()(rows)))
    model.compile(optimizer(), cross_entropy())
    return model


class Dependent(keras.Model):
    """The ids of the second look-up follow from rows of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Embedding(ROWS, WIDTH)
        self.other = keras.layers.Embedding(ROWS, WIDTH)
        self.second = keras.layers.Embedding(ROWS, WIDTH)
        self.dense = keras.layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        rows = self.first(inputs[:, 0])
        ids = keras.ops.cast(keras.ops.abs(rows[:, 0]) * 1e4, "int32") % ROWS
        return self.dense(rows + self.second(ids) + self.other(inputs[:, 1]))


def exchanges_of(strategy: tfps.ParameterServerStrategy, run: Callable[[], Any]) -> list[int]:
    """How many exchanges a run takes with each server."""
    before = strategy.stats().exchanges
    run()
    return [now - then for now, then in zip(strategy.stats().exchanges, before, strict=True)]


def requests_of_a_run(of_a_step: int, *, servers: int, metrics: bool = True) -> list[int]:
    """How many requests each server gets in a run of one worker with one device."""
    each = JOIN + STEPS * of_a_step
    return [each + TOTALS * metrics] + [each] * (servers - 1)


def assert_many_tables_take_one_request(strategy: tfps.ParameterServerStrategy) -> None:
    """Small tables travel by rows where only rows are updated."""
    with strategy.scope():
        model = many_tables(lambda: tfps.optimizers.SparseUpdates(keras.optimizers.SGD(0.5)))
    assert len(model.trainable_variables) == TABLES + 2
    run = exchanges_of(strategy, lambda: fit(model, FEATURES, LABELS, epochs=1))
    assert run == requests_of_a_run(LOOK_UP + PUSH, servers=len(run))
