"""A loop, or another function, that holds whole steps asks for all rows of a step together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import LABELS, LOCAL, assert_same, cross_entropy, densify
from tests.unit.numbers.large_tables import step_of
from tests.unit.numbers.many_tables import (
    FEATURES,
    LOOK_UP,
    PULL,
    PUSH,
    Dependent,
    exchanges_of,
    many_tables,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.testing import InProcessCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]

SERVERS, LENGTH, BATCH = 2, 3, 8
BATCHES = [
    (FEATURES[k * BATCH : (k + 1) * BATCH], LABELS[k * BATCH : (k + 1) * BATCH])
    for k in range(LENGTH)
]
Step = Callable[..., Any]
Run = Callable[..., Any]  # `strategy.run`


def _slices(step: Step, run: Run) -> Step:
    @tf.function
    def steps(ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for k in tf.range(LENGTH):
            loss = step(ids[k], labels[k])
        return loss

    return steps


def _iterator(step: Step, run: Run) -> Step:
    @tf.function
    def steps(batches: Any) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(LENGTH):
            loss = run(step, args=next(batches))
        return loss

    return steps


def _last_one_apart(step: Step, run: Run) -> Step:
    """The form of TensorFlow's tutorial: what a function returns is of its last step."""

    @tf.function
    def steps(batches: Any) -> tf.Tensor:
        for _ in tf.range(LENGTH - 1):
            run(step, args=next(batches))
        return run(step, args=next(batches))

    return steps


def _function_in_a_loop(step: Step, run: Run) -> Step:
    inner = tf.function(step)

    @tf.function
    def steps(batches: Any) -> tf.Tensor:
        for _ in tf.range(LENGTH):
            loss = inner(*next(batches))  # is first known here, so AutoGraph tries the body
        return loss  # type: ignore[possibly-undefined]

    return steps


def _one_by_one(step: Step, run: Run) -> Step:
    """A function is traced once and called several times, with a loop between."""
    inner = tf.function(step)

    @tf.function
    def steps(batches: Any) -> tf.Tensor:
        inner(*next(batches))
        for _ in tf.range(LENGTH - 2):
            run(step, args=next(batches))
        return inner(*next(batches))

    return steps


FORMS = {
    "slices": _slices,
    "iterator": _iterator,
    "last one apart": _last_one_apart,
    "function in a loop": _function_in_a_loop,
    "one by one": _one_by_one,
}


def _adagrad() -> Any:
    return keras.optimizers.Adagrad(0.1)


def _sparse_updates() -> Any:
    return tfps.optimizers.SparseUpdates(_adagrad())


def _dependent(optimizer: Callable[[], Any]) -> keras.Model:
    model = Dependent()
    model(FEATURES[:2])
    model.compile(optimizer(), cross_entropy())
    return model


MODELS: dict[str, tuple[Callable[..., keras.Model], int]] = {  # and requests for rows of a step
    "many tables": (many_tables, 1),
    "dependent ids": (_dependent, 2),
}


@pytest.fixture(scope="module")
def hashed(cluster: Callable[..., InProcessCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    """Each server has rows of each table."""
    with strategy_with(cluster(workers=1, ps=SERVERS), PARTITIONERS["shuffle"]) as strategy:
        yield strategy


def _dataset() -> tf.data.Dataset:
    ids, labels = (np.stack(each) for each in zip(*BATCHES, strict=True))
    return tf.data.Dataset.from_tensor_slices((ids, labels)).repeat()


def _alone(make: Callable[..., keras.Model], begin: list[Any], steps: int) -> tuple[float, Any]:
    """Train in one process; return the last loss and the weights."""
    with tf.device(LOCAL):
        model = make(_adagrad)
        model.set_weights(begin)
        densify(model.optimizer)
        step = step_of(model, 1)
        losses = [float(step(*map(tf.constant, BATCHES[k % LENGTH]))) for k in range(steps)]
    return losses[-1], model.get_weights()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_requests_and_the_numbers_of_one_process(
    name: str, form: str, hashed: tfps.ParameterServerStrategy
) -> None:
    make, look_ups = MODELS[name]
    with hashed.scope():
        model = make(_sparse_updates)
        model.optimizer.build(model.trainable_variables)
    begin = model.get_weights()
    steps = FORMS[form](step_of(model, 1), hashed.run)
    coordinator, losses = tfps.ClusterCoordinator(hashed), []
    if form == "slices":
        arguments: Any = [tf.constant(np.stack(each)) for each in zip(*BATCHES, strict=True)]
    else:
        arguments = [iter(coordinator.create_per_worker_dataset(_dataset))]

    def run() -> None:
        for _ in range(2):
            losses.append(float(coordinator.schedule(steps, args=tuple(arguments)).fetch()))

    requests = exchanges_of(hashed, run)
    assert requests == [2 * (PULL + LENGTH * (look_ups * LOOK_UP + PUSH))] * SERVERS
    loss, weights = _alone(make, begin, 2 * LENGTH)
    np.testing.assert_allclose(losses[-1], loss, atol=1e-5)
    assert_same(model.get_weights(), weights, tolerance=2e-5)


def test_rows_keep_their_place_among_pushes(hashed: tfps.ParameterServerStrategy) -> None:
    """Rows looked up before a loop that trains, or after it, have the values of that time."""

    def make(optimizer: Callable[[], Any]) -> keras.Model:
        return many_tables(optimizer, tables=2)

    def looks_around(model: keras.Model) -> Step:
        step = step_of(model, 1)

        @tf.function
        def compute(ids: tf.Tensor) -> tf.Tensor:
            return model(ids)

        @tf.function
        def steps(ids: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
            before, computed = model(ids), compute(ids)
            for _ in tf.range(LENGTH):
                step(ids, labels)
            return before, computed, model(ids), compute(ids)

        return steps

    with hashed.scope():
        model = make(_sparse_updates)
        model.optimizer.build(model.trainable_variables)
    begin, batch = model.get_weights(), [tf.constant(each) for each in BATCHES[0]]
    coordinator = tfps.ClusterCoordinator(hashed)
    found: list[Any] = []

    def run() -> None:
        found.extend(coordinator.schedule(looks_around(model), args=tuple(batch)).fetch())

    around = 4  # the loop, each of them a request
    assert exchanges_of(hashed, run) == [PULL + LENGTH * (LOOK_UP + PUSH) + around] * SERVERS
    with tf.device(LOCAL):
        local = make(_adagrad)
        local.set_weights(begin)
        densify(local.optimizer)
        expected = looks_around(local)(*batch)
    assert_same(found, expected, tolerance=2e-5)
    assert not np.allclose(found[0], found[2], atol=1e-3)
