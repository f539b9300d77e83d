"""Look-ups that follow from a batch are one request to each server, whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    LOCAL,
    Comparison,
    assert_same,
    cross_entropy,
    densify,
    fit,
)
from tests.unit.numbers.large_tables import step_of
from tests.unit.numbers.many_tables import (
    FEATURES,
    LOOK_UP,
    PULL,
    PUSH,
    ROWS,
    TABLES,
    WIDTH,
    Dependent,
    assert_many_tables_take_one_request,
    exchanges_of,
    many_tables,
    requests_of_a_run,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.runtime.program import tables
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)

SERVERS = 2
WORDS = np.array([f"word {number % 30}" for number in FEATURES[:, 0]])[:, None]


def _compiled(model: keras.Model) -> keras.Model:
    model.compile(keras.optimizers.Adagrad(0.1), cross_entropy())
    return model


def _several_tables() -> keras.Model:
    return many_tables(lambda: keras.optimizers.Adagrad(0.1), tables=5)


def _shared_table() -> keras.Model:
    """Two layers ask for rows of one table, most of them for the same."""
    inputs = keras.Input((TABLES,), dtype="int32")
    table = keras.layers.Embedding(ROWS, WIDTH)
    rows = [table(inputs[:, :5]), table(inputs[:, 2:7])]
    merged = keras.layers.Flatten()(keras.layers.Concatenate()(rows))
    return _compiled(keras.Model(inputs, keras.layers.Dense(3)(merged)))


def _prepared() -> keras.Model:
    """A model of numbers, words and hashes, each with a vocabulary of its own."""
    words = keras.Input((1,), dtype="string")
    numbers = keras.Input((TABLES,), dtype="int32")
    known = [f"word {number}" for number in range(20)]
    ids = [
        keras.layers.StringLookup(vocabulary=known)(words),
        keras.layers.Hashing(ROWS)(words),
        keras.layers.IntegerLookup(vocabulary=list(range(ROWS)), num_oov_indices=0)(numbers),
        numbers,
    ]
    rows = [keras.layers.Flatten()(keras.layers.Embedding(ROWS + 1, WIDTH)(each)) for each in ids]
    merged = keras.layers.Dense(3)(keras.layers.Concatenate()(rows))
    return _compiled(keras.Model([words, numbers], merged))


class ShiftedIds(keras.Model):
    """The ids of the second look-up follow from a weight, which the step before has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.first = keras.layers.Embedding(ROWS, WIDTH)
        self.second = keras.layers.Embedding(ROWS, WIDTH)
        self.dense = keras.layers.Dense(3)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.shift.assign(self.shift + 1)
        ids = (inputs[:, 1] + keras.ops.cast(self.shift, "int32")) % ROWS
        return self.dense(self.first(inputs[:, 0]) + self.second(ids))


class InABranch(keras.Model):
    """One table is looked up where the step always is, the other one in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.outside = keras.layers.Embedding(ROWS, WIDTH)
        self.inside = keras.layers.Embedding(ROWS, WIDTH)
        self.dense = keras.layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        rows = self.outside(inputs[:, 0])
        more = tf.cond(
            inputs[0, 0] % 2 == 0, lambda: self.inside(inputs[:, 1]), lambda: tf.zeros_like(rows)
        )
        return self.dense(rows + more)


def _built(kind: type[keras.Model]) -> Callable[[], keras.Model]:
    def make() -> keras.Model:
        model = kind()
        model(FEATURES[:2])
        return _compiled(model)

    return make


MODELS: dict[str, tuple[Callable[[], keras.Model], int]] = {  # and requests for rows of a step
    "several tables": (_several_tables, 1),
    "shared table": (_shared_table, 1),
    "prepared ids": (_prepared, 1),
    "dependent ids": (_built(Dependent), 2),
    "ids of a weight": (_built(ShiftedIds), 2),
    "in a branch": (_built(InABranch), 1),  # what is looked up there is pulled as a whole
}


@pytest.fixture(autouse=True)
def _small_tables_travel_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LEAST_TABLE_BYTES", 1)


@pytest.fixture(scope="module")
def hashed(cluster: Callable[..., InProcessCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    """Each server has rows of each table."""
    with strategy_with(cluster(workers=1, ps=SERVERS), PARTITIONERS["shuffle"]) as strategy:
        yield strategy


@pytest.mark.repeats
def test_many_tables_are_one_request(hashed: tfps.ParameterServerStrategy) -> None:
    assert_many_tables_take_one_request(hashed)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_requests_of_a_step_and_the_numbers_of_one_process(
    name: str, hashed: tfps.ParameterServerStrategy
) -> None:
    make, look_ups = MODELS[name]
    x = [tf.constant(WORDS), FEATURES] if name == "prepared ids" else FEATURES
    counts: list[list[int]] = []

    def use(model: keras.Model) -> dict[str, Any]:
        found: dict[str, Any] = {}
        options: dict[str, Any] = {"batch_size": BATCH, "verbose": 0}
        for run in (
            lambda: found.update(fit(model, x, LABELS, epochs=1)),
            lambda: found.update(evaluated=model.evaluate(x, LABELS, **options)),
            lambda: found.update(predicted=model.predict(x, **options)),
        ):
            counts.append(exchanges_of(hashed, run))
        return found

    Comparison(hashed).run(make, use)
    ours = [each for each in counts if any(each)]  # without those of one process
    assert ours == [
        requests_of_a_run(look_ups + PUSH, servers=SERVERS),
        requests_of_a_run(look_ups, servers=SERVERS),
        requests_of_a_run(look_ups, servers=SERVERS, metrics=False),
    ]


@pytest.mark.repeats
@pytest.mark.parametrize("calls", [1, 2])
def test_scheduled_functions(calls: int, hashed: tfps.ParameterServerStrategy) -> None:
    """A second call of the optimizer computes from rows that the first has changed."""
    with hashed.scope():
        model = _several_tables()
        model.optimizer.build(model.trainable_variables)
    step = tf.function(step_of(model, calls))
    batch = tf.constant(FEATURES[:BATCH]), tf.constant(LABELS[:BATCH])
    coordinator, begin = tfps.ClusterCoordinator(hashed), model.get_weights()
    losses: list[float] = []

    def run() -> None:
        for _ in range(2):
            losses.append(float(coordinator.schedule(step, args=batch).fetch()))

    assert exchanges_of(hashed, run) == [2 * (PULL + calls * (LOOK_UP + PUSH))] * SERVERS
    with tf.device(LOCAL):
        local = _several_tables()
        local.set_weights(begin)
        densify(local.optimizer)
        expected = [float(step_of(local, calls)(*batch)) for _ in range(2)]
    np.testing.assert_allclose(losses, expected, atol=1e-5)
    assert_same(model.get_weights(), local.get_weights(), tolerance=1e-5)


@pytest.mark.repeats
def test_a_function_that_takes_its_batches_from_an_iterator(
    hashed: tfps.ParameterServerStrategy,
) -> None:
    with hashed.scope():
        model = _several_tables()
        model.optimizer.build(model.trainable_variables)
    take = step_of(model, 1)
    step = tf.function(lambda batches: take(*next(batches)))
    coordinator = tfps.ClusterCoordinator(hashed)

    def dataset() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors((FEATURES[:BATCH], LABELS[:BATCH])).repeat()

    batches = iter(coordinator.create_per_worker_dataset(dataset))
    losses: list[float] = []

    def run() -> None:
        for _ in range(2):
            losses.append(float(coordinator.schedule(step, args=(batches,)).fetch()))

    assert exchanges_of(hashed, run) == [2 * (PULL + LOOK_UP + PUSH)] * SERVERS
    assert losses[1] < losses[0]


@pytest.mark.repeats
def test_gradients_come_for_the_rows_that_were_looked_up(
    hashed: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So these rows are found only once."""
    made_unique: list[tf.Tensor] = []
    unique = tf.unique

    def watched(ids: tf.Tensor, *args: Any, **options: Any) -> Any:
        made_unique.append(ids)
        return unique(ids, *args, **options)

    monkeypatch.setattr(tf, "unique", watched)
    with hashed.scope():
        model = _several_tables()
    fit(model, FEATURES[: 2 * BATCH], LABELS[: 2 * BATCH], epochs=1)
    assert made_unique
    assert len(made_unique) == len({id(each) for each in made_unique})


@pytest.mark.repeats
def test_an_id_that_is_in_no_table_is_named(cluster: Callable[..., InProcessCluster]) -> None:
    """Keras counts negative ids from the end; the error shows the id after that."""
    ids = FEATURES.copy()
    ids[5, 2] = -ROWS - 1
    with strategy_with(cluster(workers=1, ps=SERVERS), PARTITIONERS["shuffle"]) as strategy:
        with strategy.scope():
            model = _shared_table()
        with raises(
            tf.errors.InvalidArgumentError,
            "embeddings: ",
            received="[-1]",
            remedy=f"expected 0 to {ROWS - 1}",
        ):
            fit(model, ids, LABELS)
