"""`fit`, `evaluate` and `predict` of unchanged Keras models on two workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, Visits, cross_entropy, mean_output, numbered
from tests.messages import raises
from tfps.errors import UnsupportedError

EXAMPLES, BATCH = 100, 8
BATCHES = 13  # the last one holds 4 examples
X, LABELS = numbered(EXAMPLES)
SLOW_TURNS = 100_000  # of a loop in a graph: a good second

pytestmark = pytest.mark.timeout(180)


def _visits(model: keras.Model) -> list[int]:
    (visits,) = (metric for metric in _metrics(model) if isinstance(metric, Visits))
    return visits.counts()


def _metrics(model: keras.Model) -> list[Any]:
    return [inner for metric in model.metrics for inner in getattr(metric, "metrics", [metric])]


def _dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(BATCH)


def _share(context: tf.distribute.InputContext) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices((X, LABELS))
    return dataset.shard(context.num_input_pipelines, context.input_pipeline_id).batch(BATCH)


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "y": LABELS, "batch_size": BATCH},
    "dataset": lambda: {"x": _dataset()},
    "dataset of unknown length": lambda: {"x": _dataset().filter(lambda x, y: True)},
    "dataset function": lambda: {"x": _share},
}


# Quicker ones: a generator in ../input/test_ways.py, and shards, with a worker that dies, in
# test_lost_worker.py.
@pytest.mark.repeats
@pytest.mark.parametrize("kind", INPUTS)
def test_each_example_once_per_epoch(
    kind: str, model: keras.Model, strategy: tfps.ParameterServerStrategy
) -> None:
    before = strategy.stats()
    history = model.fit(**INPUTS[kind](), epochs=2, verbose=0).history
    after = strategy.stats()
    assert _visits(model) == [1] * EXAMPLES
    assert after.examples_seen - before.examples_seen == 2 * EXAMPLES
    steps = 2 * (14 if kind == "dataset function" else BATCHES)  # two shares of 50: 7 batches each
    assert after.updates_applied - before.updates_applied == steps
    assert after.fallback_steps == 0
    assert len(history["loss"]) == 2
    assert np.isfinite(history["loss"]).all()


# A quicker one is tests/unit/one_process/test_dataset_functions.py.
@pytest.mark.repeats
def test_dataset_function_knows_its_worker(model: keras.Model) -> None:
    contexts = []

    def repeated(context: tf.distribute.InputContext) -> tf.data.Dataset:
        contexts.append((context.num_input_pipelines, context.input_pipeline_id))
        return _share(context).repeat()

    iterations = int(model.optimizer.iterations.numpy())
    history = model.fit(repeated, steps_per_epoch=6, epochs=2, verbose=0).history
    assert set(contexts) == {(2, 0), (2, 1)}
    assert int(model.optimizer.iterations.numpy()) == iterations + 12
    assert len(history["loss"]) == 2


@pytest.mark.repeats
def test_slow_worker_still_shows_its_share(model: keras.Model) -> None:
    """The first worker builds its pipeline for so long that the other one is done before."""

    def uneven(context: tf.distribute.InputContext) -> tf.data.Dataset:
        turns = 0 if context.input_pipeline_id else SLOW_TURNS
        (counted,) = tf.while_loop(lambda i: i < turns, lambda i: [i + 1], [0])
        return _share(context).skip(tf.cast(counted - turns, tf.int64))

    model.fit(uneven, epochs=2, verbose=0)
    assert _visits(model) == [1] * EXAMPLES


# A quicker one is tests/unit/numbers/metrics/test_exact.py.
@pytest.mark.repeats
def test_evaluate_is_exact_and_distributed(
    model: keras.Model, strategy: tfps.ParameterServerStrategy
) -> None:
    before = sum(strategy.stats().worker_evaluation_steps)
    updates = strategy.stats().updates_applied
    loss = model.evaluate(X, LABELS, batch_size=BATCH, verbose=0, return_dict=True)["loss"]
    assert _visits(model) == [1] * EXAMPLES
    logits = _logits(model)
    chosen = logits[np.arange(EXAMPLES), LABELS[:, 0]]
    expected = np.mean(np.log(np.exp(logits).sum(1)) - chosen)
    assert loss == pytest.approx(expected, abs=1e-5)
    assert sum(strategy.stats().worker_evaluation_steps) - before == BATCHES
    assert strategy.stats().updates_applied == updates


def _logits(model: keras.Model) -> np.ndarray:
    kernel, bias = model.get_weights()
    return X @ kernel + bias


@pytest.mark.repeats
def test_frozen_layer_stays(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(5, name="frozen"), keras.layers.Dense(3)]
        )
        model.compile(keras.optimizers.SGD(0.1), cross_entropy)
    start = model.get_weights()
    model.fit(X, LABELS, batch_size=BATCH, epochs=1, verbose=0)
    trained = model.get_weights()
    assert all(_differ(a, b) for a, b in zip(start, trained, strict=True))
    model.get_layer("frozen").trainable = False
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.1), cross_entropy)
    model.fit(X, LABELS, batch_size=BATCH, epochs=1, verbose=0)
    moved = [_differ(a, b) for a, b in zip(trained, model.get_weights(), strict=True)]
    assert moved == [False, False, True, True]
    assert int(model.optimizer.iterations.numpy()) == BATCHES


def _differ(left: np.ndarray, right: np.ndarray) -> bool:
    return bool((left != right).any())


class OwnTrainFunction(keras.Sequential):
    def make_train_function(self, force: bool = False) -> Any:
        return super().make_train_function(force)


@pytest.mark.repeats
def test_override_of_what_is_replaced_is_refused(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = OwnTrainFunction([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", cross_entropy)
    with raises(
        UnsupportedError,
        "OwnTrainFunction: ",
        received="make_train_function()",
        remedy="train_step()",
    ):
        model.fit(X, LABELS, verbose=0)


def test_variable_from_outside_the_scope_is_refused(strategy: tfps.ParameterServerStrategy) -> None:
    layer = UnitGradients(name="from_outside")
    layer.build((None, 4))
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layer])
        model.compile("sgd", mean_output)
    with raises(UnsupportedError, "from_outside", remedy="strategy.scope()"):
        model.fit(X, LABELS, verbose=0)
