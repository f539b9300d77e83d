"""A divided variable looks like one tensor, in its logical order."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.comparison import LABELS, X, assert_same, cross_entropy, fit
from tests.unit.numbers.partitioned import small
from tfps.bridge.variables.shards import get_row_rule, get_shards
from tfps.errors import UnsupportedError
from tfps.partitioners.row_rule import rows_of

pytestmark = pytest.mark.timeout(180)

TABLE = np.arange(33, dtype="float32").reshape(11, 3)


@pytest.fixture
def table(strategy: tfps.ParameterServerStrategy) -> Any:
    """A Keras variable whose rows lie on both servers."""
    with strategy.scope():
        return keras.Variable(TABLE, name="table")


def test_reads_and_writes(table: Any) -> None:
    np.testing.assert_array_equal(table.numpy(), TABLE)
    np.testing.assert_array_equal(tf.convert_to_tensor(table), TABLE)
    np.testing.assert_array_equal(keras.ops.take(table, [7, 0], axis=0), TABLE[[7, 0]])
    np.testing.assert_array_equal(tf.gather(table.value, [7, 0]), TABLE[[7, 0]])
    np.testing.assert_array_equal(table[2:5], TABLE[2:5])
    table.assign(TABLE * 2)
    table.assign_add(TABLE)
    table.assign_sub(tf.ones([3]))
    np.testing.assert_array_equal(table.numpy(), 3 * TABLE - 1)
    table.value.scatter_update(tf.IndexedSlices(tf.zeros([2, 3]), [10, 1]))
    expected = 3 * TABLE - 1
    expected[[10, 1]] = 0
    np.testing.assert_array_equal(table.numpy(), expected)
    with raises(ValueError, table.value.name, received="shape (2, 3)", remedy="expected (11, 3)"):
        table.value.assign(tf.zeros([2, 3]))
    with raises(UnsupportedError, table.value.name, received="2 shards", remedy="assign()"):
        table.value.scatter_mul(tf.IndexedSlices(tf.zeros([1, 3]), [0]))


def test_shards_hold_the_rows_that_their_rule_says(table: Any) -> None:
    shards, rule = get_shards(table), get_row_rule(table)
    assert len({shard.value.device for shard in shards}) == rule.shards == 2
    for number, shard in enumerate(shards):
        np.testing.assert_array_equal(shard.numpy(), TABLE[rows_of(rule, number)])


def test_the_shards_are_listed_as_tensorflow_lists_them(
    table: Any, strategy: tfps.ParameterServerStrategy
) -> None:
    shards = table.value.variables
    assert all(isinstance(shard, tf.Variable) for shard in shards)
    assert sorted(shard.device for shard in shards) == sorted(strategy.runtime.topology.servers)
    assert sum(shard.shape[0] for shard in shards) == len(TABLE)
    shards[1].assign(tf.zeros_like(shards[1]))
    expected = TABLE.copy()
    expected[rows_of(get_row_rule(table), 1)] = 0
    np.testing.assert_array_equal(table.numpy(), expected)


def test_a_tape_on_the_chief(table: Any) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, 1, 4]) ** 2)
    expected = np.zeros_like(TABLE)
    expected[1], expected[4] = 4 * TABLE[1], 2 * TABLE[4]
    np.testing.assert_array_equal(tf.convert_to_tensor(tape.gradient(loss, table.value)), expected)


@pytest.mark.slow
def test_slots_are_divided_alike_and_lie_beside(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = small(lambda: keras.optimizers.Adam(0.01, name="beside"))
    fit(model)
    kernel = model.layers[0].kernel
    slots = [v for v in model.optimizer.variables if v.shape == kernel.shape]
    assert len(slots) == 2
    for slot in slots:
        assert get_row_rule(slot) == get_row_rule(kernel)
        assert [p.value.device for p in get_shards(slot)] == [
            p.value.device for p in get_shards(kernel)
        ]
    views = {view.variable: view for view in strategy.plan.views}
    assert views[f"{kernel.path}/1"].shape == (4, 6)
    assert {views[f"{kernel.path}/{k}"].server for k in (0, 1)} == {0, 1}


def test_weights_are_set_and_read_in_logical_order(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = small(keras.optimizers.SGD)
    weights = [np.random.default_rng(3).normal(size=w.shape) for w in model.get_weights()]
    model.set_weights(weights)
    assert_same(model.get_weights(), weights, tolerance=1e-7)


def test_pull_and_push(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        variable = keras.Variable(TABLE, name="pulled")
    values, version = strategy.pull([variable.path])
    np.testing.assert_array_equal(values[variable.path], TABLE)
    strategy.push({variable.path: TABLE / 2}, version)
    np.testing.assert_array_equal(variable.numpy(), TABLE / 2)


@pytest.mark.repeats
def test_a_loop_of_ones_own(strategy: tfps.ParameterServerStrategy) -> None:
    keras.utils.set_random_seed(2)
    with strategy.scope():
        model = small(lambda: keras.optimizers.Adam(0.05))
    loss_function = cross_entropy()

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_function(LABELS, model(tf.constant(X), training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = [strategy.coordinator.schedule(step) for _ in range(5)]
    strategy.coordinator.join()
    found = [float(loss.fetch()) for loss in losses]
    assert found == sorted(found, reverse=True)
    assert strategy.stats().fallback_steps == 0


REFUSED: dict[str, tuple[Any, str]] = {
    "lamb": (keras.optimizers.Lamb, "Lamb"),
    "muon": (keras.optimizers.Muon, "Muon"),
    "adafactor": (keras.optimizers.Adafactor, "Adafactor"),
    "accumulated and clipped": (
        lambda: keras.optimizers.SGD(clipnorm=1.0, gradient_accumulation_steps=2),
        "SGD(clipnorm=1.0, gradient_accumulation_steps=2)",
    ),
}


@pytest.mark.quick("lamb", "accumulated and clipped")
@pytest.mark.parametrize("name", REFUSED)
def test_optimizers_that_need_whole_variables_are_refused(
    name: str, strategy: tfps.ParameterServerStrategy
) -> None:
    make, optimizer = REFUSED[name]
    with strategy.scope():
        model = small(make)
    received = f"2 shards of the variable, and {optimizer} "
    with raises(UnsupportedError, "kernel: ", received=received, remedy="variable_partitioner="):
        fit(model)


def test_a_constraint_across_rows_is_refused(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        constraint = keras.constraints.MaxNorm(1.0, axis=0)
        layer = keras.layers.Dense(3, kernel_constraint=constraint, use_bias=False)
        model = keras.Sequential([keras.Input((8,)), layer])
        model.compile("sgd", cross_entropy())
    with raises(UnsupportedError, "kernel: ", received="MaxNorm", remedy="variable_partitioner="):
        fit(model)


def test_the_chief_reads_the_rows_that_it_looks_up(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so in functions as well, which do not put the whole table together either."""
    with strategy.scope():
        layer = keras.layers.Embedding(11, 3, embeddings_initializer=lambda *_, **__: TABLE)
        layer.build()
    ids = tf.constant([[3, -1], [10, 3]])  # -1 is the last row
    monkeypatch.setattr(type(layer.embeddings.value), "read_composed", None)
    for look_up in (layer, tf.function(layer)):
        np.testing.assert_array_equal(look_up(ids), TABLE[[[3, 10], [10, 3]]])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(look_up(ids)[:, 0] ** 2)
        gradient = tape.gradient(loss, layer.embeddings.value)
        dense = np.zeros_like(TABLE)
        dense[3], dense[10] = 2 * TABLE[3], 2 * TABLE[10]
        np.testing.assert_array_equal(tf.convert_to_tensor(gradient), dense)
    for wrong in (11, -12):
        with raises(tf.errors.InvalidArgumentError, "rows of embedding", remedy="/embeddings"):
            layer(tf.constant([0, wrong]))
