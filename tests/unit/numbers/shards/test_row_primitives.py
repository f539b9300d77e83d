"""`strategy.pull_rows` and `push_rows`: rows of a table by their ids, however it is divided."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import assert_same, cross_entropy, fit
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import leave_other_rows
from tfps.bridge.variables.shards import get_shards
from tfps.optimizers import SparseUpdates, StalenessAware
from tfps.optimizers.wrapped import get_leaf_optimizers, iter_slots
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)

ROWS, WIDTH = 29, 3
TABLE = np.random.default_rng(3).normal(size=(ROWS, WIDTH)).astype("float32")
IDS = [7, 28, 0, 7, 13, 7]
GRADIENTS = np.random.default_rng(4).normal(size=(len(IDS), WIDTH)).astype("float32")

numbers = itertools.count()


@pytest.fixture(scope="module", params=["whole", "fixed", "modulo", "shuffle"])
def strategy(
    cluster: Callable[..., InProcessCluster], request: pytest.FixtureRequest
) -> Iterator[tfps.ParameterServerStrategy]:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS.get(request.param)) as strategy:
        yield strategy


def make_table(strategy: tfps.ParameterServerStrategy, value: Any = TABLE) -> keras.Variable:
    with strategy.scope():
        return keras.Variable(value, name=f"table{next(numbers)}")


@pytest.fixture
def table(strategy: tfps.ParameterServerStrategy) -> keras.Variable:
    return make_table(strategy)


def scheduled(strategy: tfps.ParameterServerStrategy, function: Callable[[], Any]) -> Any:
    """Run a function on a worker; return its result."""
    result = strategy.coordinator.schedule(tf.function(function))
    strategy.coordinator.join()
    return tf.nest.map_structure(np.asarray, result.fetch())


@pytest.mark.quick("shuffle")
def test_each_id_has_its_row(strategy: tfps.ParameterServerStrategy, table: keras.Variable) -> None:
    rows, version = strategy.pull_rows(table.path, IDS)
    np.testing.assert_array_equal(rows, TABLE[IDS])
    np.testing.assert_array_equal(version, strategy.pull([])[1])
    rows, _ = scheduled(strategy, lambda: strategy.pull_rows(table.path, tf.constant(IDS)))
    np.testing.assert_array_equal(rows, TABLE[IDS])


@pytest.mark.repeats
@pytest.mark.parametrize("ids", [[], [5], np.arange(ROWS), np.array([1, 1], "uint8")])
def test_as_many_as_are_asked_for(
    ids: Any, strategy: tfps.ParameterServerStrategy, table: keras.Variable
) -> None:
    rows, _ = strategy.pull_rows(table.path, ids)
    np.testing.assert_array_equal(rows, TABLE[np.asarray(ids, "int64")])


@pytest.mark.rare
def test_rows_of_any_rank_and_dtype(strategy: tfps.ParameterServerStrategy) -> None:
    value = np.arange(ROWS * 4, dtype="float16").reshape(ROWS, 2, 2)
    with strategy.scope():
        table = keras.Variable(value, name="halves", dtype="float16")
    rows, _ = strategy.pull_rows(table.path, IDS)
    assert rows.dtype == value.dtype
    np.testing.assert_array_equal(rows, value[IDS])


@pytest.mark.quick("shuffle")
def test_only_distinct_rows_travel(
    strategy: tfps.ParameterServerStrategy, table: keras.Variable
) -> None:
    before = strategy.stats()
    strategy.pull_rows(table.path, IDS * 20)
    after = strategy.stats()
    assert after.bytes_pulled - before.bytes_pulled == 4 * WIDTH * len(set(IDS))
    counts = zip(before.exchanges, after.exchanges, strict=True)
    assert [now - then for then, now in counts] == [1, 1]


def summed(ids: Any, gradients: Any) -> np.ndarray[Any, Any]:
    """The gradient of the whole table."""
    dense = np.zeros_like(TABLE)
    np.add.at(dense, ids, gradients)
    return dense


@pytest.mark.quick("shuffle")
def test_gradients_are_subtracted(
    strategy: tfps.ParameterServerStrategy, table: keras.Variable
) -> None:
    _, version = strategy.pull_rows(table.path, IDS)
    new, staleness = strategy.push_rows(table.path, IDS, GRADIENTS, version)
    assert (new - version).tolist() == [1, 1]
    assert staleness == 0
    expected = TABLE - summed(IDS, GRADIENTS)
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-6)
    others = np.setdiff1d(np.arange(ROWS), IDS)
    np.testing.assert_array_equal(table.numpy()[others], TABLE[others])
    newer, staleness = strategy.push_rows(table.path, [], np.zeros([0, WIDTH]), version)
    assert (newer - new).tolist() == [1, 1]
    assert staleness == 1


@pytest.mark.slow
def test_in_a_scheduled_function(
    strategy: tfps.ParameterServerStrategy, table: keras.Variable
) -> None:
    def step() -> Any:
        ids = tf.constant(IDS)
        rows, version = strategy.pull_rows(table.path, ids)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            loss = tf.reduce_sum(rows**2) / 2
        _, first = strategy.push_rows(table.path, ids, tape.gradient(loss, rows), version)
        again, second = strategy.push_rows(table.path, ids[:1], rows[:1], version)
        return version, again, first, second

    version, again, *staleness = scheduled(strategy, step)
    assert staleness == [0, 1]
    assert (again - version).tolist() == [2, 2]
    expected = TABLE - summed(IDS, TABLE[IDS]) - summed(IDS[:1], TABLE[IDS[:1]])
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-5, atol=1e-6)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "clipped": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.05),
    "rows": lambda: SparseUpdates(keras.optimizers.Adam(0.01)),
    "stale": lambda: StalenessAware(keras.optimizers.Adam(0.01)),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
}


@pytest.mark.quick("shuffle-adam")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_updates_those_rows_as_keras_does(
    strategy: tfps.ParameterServerStrategy, name: str
) -> None:
    """The update is lazy: the slots of the other rows stay."""
    with strategy.scope():
        table = make_table(strategy)
        optimizer = OPTIMIZERS[name]()
        optimizer.build([table])
    alone = keras.Variable(TABLE, name="embeddings")
    reference = OPTIMIZERS[name]()
    reference.build([alone])
    for leaf in get_leaf_optimizers(reference):
        leave_other_rows(leaf)
    for ids in (IDS, IDS[2:], [1, 2, 3], IDS):
        gradients = np.resize(GRADIENTS, (len(ids), WIDTH))
        _, version = strategy.pull_rows(table.path, ids)
        strategy.push_rows(table.path, ids, gradients, version, optimizer=optimizer)
        reference.apply([tf.constant(summed(ids, gradients))], [alone])
    assert_same(table.numpy(), alone.numpy())
    assert int(optimizer.iterations) == int(reference.iterations) == 4
    found, expected = (iter_slots(*get_leaf_optimizers(each)) for each in (optimizer, reference))
    for (_, (slot,)), (_, (other,)) in zip(found, expected, strict=True):
        assert_same(slot.numpy(), other.numpy())


@pytest.mark.repeats
def test_a_step_whose_loss_was_scaled_too_far_is_left_out_everywhere(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    with strategy.scope():
        table = make_table(strategy)
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
        optimizer.build([table])
    gradients = GRADIENTS.copy()
    gradients[1, 0] = np.inf
    _, version = strategy.pull_rows(table.path, IDS)
    strategy.push_rows(table.path, IDS, gradients, version, optimizer=optimizer)
    np.testing.assert_array_equal(table.numpy(), TABLE)
    assert float(optimizer.dynamic_scale) == optimizer.initial_scale / 2


@pytest.mark.rare
@pytest.mark.parametrize("optimizer", [None, keras.optimizers.Adagrad])
def test_a_table_in_a_slab(
    strategy: tfps.ParameterServerStrategy, optimizer: Callable[[], Any] | None
) -> None:
    """A small table lies in a slab after `fit`; its neighbours stay unchanged."""
    with strategy.scope():
        layer = keras.layers.Embedding(ROWS, WIDTH, embeddings_regularizer="l2")
        model = keras.Sequential([keras.Input((5,)), layer, keras.layers.Flatten()])
        model.add(keras.layers.Dense(3))
        model.compile(keras.optimizers.Adagrad(0.1), cross_entropy())
    ids = np.arange(320).reshape(64, 5) % ROWS
    fit(model, ids, np.arange(64) % 3, epochs=1)
    table = layer.embeddings
    shards = get_shards(table)
    assert any(shard.value.slab is not None for shard in shards)
    others, before = model.layers[-1].get_weights(), table.numpy()
    rows, version = strategy.pull_rows(table.path, IDS)
    np.testing.assert_array_equal(rows, before[IDS])
    by: Any = None if optimizer is None else model.optimizer
    slot = None if by is None else by._accumulators[by._get_variable_index(table)].numpy()
    strategy.push_rows(table.path, IDS, GRADIENTS, version, optimizer=by)
    gradient = summed(IDS, GRADIENTS)
    if slot is None:
        expected = before - gradient
    else:
        expected = before - 0.1 * gradient / np.sqrt(slot + gradient**2 + by.epsilon)
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert_same(model.layers[-1].get_weights(), others, tolerance=0)


def test_a_raw_variable(cluster: Callable[..., InProcessCluster]) -> None:
    with strategy_with(cluster(workers=1, ps=2), None) as strategy:
        with strategy.scope():
            tf.Variable(tf.zeros([3]), name="first")
            table = tf.Variable(TABLE, name="raw")
        rows, version = strategy.pull_rows("raw", IDS)
        np.testing.assert_array_equal(rows, TABLE[IDS])
        strategy.push_rows("raw", IDS, GRADIENTS, version)
        np.testing.assert_allclose(table.numpy(), TABLE - summed(IDS, GRADIENTS), rtol=1e-6)


@pytest.mark.repeats
def test_only_distinct_rows_are_pushed(
    strategy: tfps.ParameterServerStrategy, table: keras.Variable
) -> None:
    _, version = strategy.pull_rows(table.path, IDS)
    before = strategy.stats()
    strategy.push_rows(table.path, IDS * 20, np.tile(GRADIENTS, (20, 1)), version)
    after = strategy.stats()
    shards = len({shard.value.device for shard in get_shards(table)})
    row_bytes = 4 * WIDTH * len(set(IDS))
    pushed = after.bytes_pushed - before.bytes_pushed
    assert row_bytes < pushed <= row_bytes + 4 * len(set(IDS)) + 16 * shards
    assert after.bytes_pulled == before.bytes_pulled
