"""Modes, ways of training and tables: what each combination of them gives, as data.

A combination is the same as one process, or a refusal. `assert_outcome` tries one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers import large_tables, tables
from tests.unit.numbers.collections_model import dataset, recommender
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    LOCAL,
    Comparison,
    X,
    assert_same,
    assert_same_state,
)
from tests.unit.numbers.large_tables import TABLE_BYTES
from tests.unit.numbers.partitioned import of_many_layers, small
from tests.unit.numbers.ways import WAYS
from tfps.errors import UnsupportedError
from tfps.optimizers import AsyncAdam, ByTable

Make = Callable[[], Any]

MODES: dict[str, Any] = {
    "asynchronous": tfps.Asynchronous(),
    "warm-up": tfps.Asynchronous(warm_up_steps=2),
    "bounded": tfps.BoundedStaleness(1),
    "synchronous": tfps.Synchronous(),
    "local": tfps.LocalSteps(2),
    "local rounds": tfps.LocalSteps(2, synchronous_periods=True),
    "elastic": tfps.LocalSteps(2, elasticity=0.4),
    "rounds after a warm-up": tfps.Synchronous(warm_up_steps=2),
    "bounded after a warm-up": tfps.BoundedStaleness(1, warm_up_steps=2),
    "local after a warm-up": tfps.LocalSteps(2, warm_up_steps=2),
}


@dataclass(frozen=True)
class Table:
    """A model over tables, or over none, its examples, and optimizers; the first one is usual."""

    make: Callable[[Make], keras.Model]
    data: Callable[[int], tf.data.Dataset]  # by the examples of a batch
    optimizers: Mapping[str, Make]
    is_large: bool = False  # so that bytes tell whether rows travel
    rows: np.ndarray | None = None  # of its layer "own" that come; the others stay as they are


def _batches(x: Any) -> Callable[[int], tf.data.Dataset]:
    return lambda size: tf.data.Dataset.from_tensor_slices((x, LABELS)).batch(size)


def _by_table() -> Any:
    others = keras.optimizers.SGD(0.1)
    return ByTable({"users": keras.optimizers.Adagrad(0.1), "items": "sgd"}, others)


def _ahead() -> Any:
    return AsyncAdam(0.01)


def _ahead_beside_tables() -> Any:
    return ByTable({"users": keras.optimizers.Adagrad(0.1), "items": "sgd"}, AsyncAdam(0.01))


def _adam() -> Any:
    return keras.optimizers.Adam(0.01)


TABLES: dict[str, Table] = {
    "no table": Table(
        small,
        _batches(X),
        {
            "adam": _adam,
            "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
            "clipped": lambda: keras.optimizers.Adam(0.01, clipnorm=0.3),
            "clipped together": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.3),
            "averages": lambda: keras.optimizers.AdamW(
                0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=3
            ),
            "accumulated": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=3),
            "scaled loss": lambda: keras.optimizers.LossScaleOptimizer(
                keras.optimizers.Adam(0.01, clipnorm=0.3), dynamic_growth_steps=3
            ),
            "ahead": _ahead,
        },
    ),
    "many layers": Table(of_many_layers, _batches(X), {"adam": _adam}),
    "large table": Table(
        large_tables.small_tables,
        _batches(large_tables.IDS),
        {"adam": _adam, "ahead": _ahead, **large_tables.OPTIMIZERS},
        is_large=True,
    ),
    "SparseUpdates": Table(
        tables.lazy_model,
        _batches(tables.IDS),
        {"adam": tables.LAZY["adam"], **tables.LAZY, **tables.EXACT},
        rows=tables.IDS,
    ),
    "collection": Table(
        recommender,
        lambda size: dataset(batch_size=size),
        {
            "adagrad": tables.EXACT["adagrad"],
            **tables.EXACT,
            "adam of tables": _adam,
            "by table": _by_table,
            "ahead beside tables": _ahead_beside_tables,
        },
    ),
}


@dataclass(frozen=True)
class SameNumbers:
    """The numbers of one process.

    Args:
        tolerance: of losses, weights and the state of optimizers.
        batches: of a worker that are one batch of one process.
        keeps_slots: workers keep the optimizer's state, which is compared where servers have it.
        whole: large tables travel as a whole, and not their rows.
    """

    tolerance: float = 1e-5
    batches: int = 1
    keeps_slots: bool = False
    whole: bool = False


@dataclass(frozen=True)
class RefusedCase:
    """An `UnsupportedError` before anything is applied, with what its message must contain."""

    key: str
    received: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Learns:
    """Several workers, for which one process has no numbers: the loss falls."""


Outcome = SameNumbers | RefusedCase | Learns


@dataclass(frozen=True)
class Case:
    """A combination, and what it gives."""

    mode: str
    way: str
    table: str
    outcome: Outcome
    optimizer: str = ""  # empty: the table's usual one
    division: str | None = "shuffle"
    servers: int = 2
    workers: int = 1
    limit_bytes: int | None = None  # the largest table that may travel as a whole

    @property
    def name(self) -> str:
        """The name of the optimizer."""
        return self.optimizer or next(iter(TABLES[self.table].optimizers))

    @property
    def id(self) -> str:
        """The combination in words."""
        division = "" if self.division == "shuffle" else str(self.division or "whole")
        servers = "" if self.servers == 2 else f"{self.servers} servers"
        workers = "" if self.workers == 1 else f"{self.workers} workers"
        limit = "" if self.limit_bytes is None else "too large"
        parts = (self.mode, self.way, self.table, self.name, division, servers, workers, limit)
        return "-".join(filter(None, parts))


def assert_outcome(strategy: tfps.ParameterServerStrategy, case: Case) -> None:
    """Try a combination on a strategy that has its mode, division and numbers of tasks."""
    table = TABLES[case.table]
    optimizer = table.optimizers[case.name]
    if isinstance(case.outcome, SameNumbers):
        _assert_same_as_one_process(strategy, case, table, optimizer, case.outcome)
        return
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = table.make(optimizer)
        model.optimizer.build(model.trainable_variables)
    train = WAYS[case.way]
    if isinstance(case.outcome, RefusedCase):
        outcome = case.outcome
        with raises(
            UnsupportedError, outcome.key, received=outcome.received, remedy=outcome.remedy
        ):
            train(model, table.data(BATCH), strategy)
        assert strategy.stats().updates_applied == 0
        return
    losses = [train(model, table.data(BATCH), strategy)["loss"] for _ in range(2)]
    assert losses[-1][-1] < losses[0][0]
    assert strategy.stats().fallback_steps == 0


def _assert_same_as_one_process(
    strategy: tfps.ParameterServerStrategy,
    case: Case,
    table: Table,
    optimizer: Make,
    same: SameNumbers,
) -> None:
    def make() -> keras.Model:
        model = table.make(optimizer)
        model.optimizer.build(model.trainable_variables)
        return model

    found, expected = Comparison(strategy).pair(make)
    if case.division is not None and case.servers > 1:
        assert any(len(getattr(v.value, "shards", ())) > 1 for v in found.trainable_variables)
    first = None if table.rows is None else found.get_layer("own").get_weights()[0]
    train = WAYS[case.way]
    before = strategy.stats()
    numbers = train(found, table.data(BATCH), strategy)
    after = strategy.stats()
    assert after.fallback_steps == 0
    with tf.device(LOCAL):
        data = table.data(BATCH * same.batches)
        for name, values in train(expected, data, None).items():
            pair = tf.nest.flatten(numbers[name]), tf.nest.flatten(values)
            assert_same(*pair, tolerance=same.tolerance, what=name)
    if same.keeps_slots:
        assert_same(found.get_weights(), expected.get_weights(), tolerance=same.tolerance)
    else:
        assert_same_state(found, expected, tolerance=same.tolerance)
    assert int(found.optimizer.iterations) == int(expected.optimizer.iterations)
    if table.rows is not None and first is not None:
        absent = np.setdiff1d(np.arange(len(first)), table.rows)
        (last,) = found.get_layer("own").get_weights()
        np.testing.assert_array_equal(last[absent], first[absent])
    if table.is_large:
        pulled = after.bytes_pulled - before.bytes_pulled
        pushed = after.bytes_pushed - before.bytes_pushed
        if same.whole:
            assert min(pulled, pushed) > 2 * TABLE_BYTES
        else:
            # All would go in each step; an epoch's evaluation and a prediction pull rows as well.
            assert pulled < 2 * TABLE_BYTES
            assert pushed < TABLE_BYTES
