"""A step on one thread gives the numbers of a step on a thread pool, and names the same lines."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.harness.command import run_command
from tfps.launch import LocalCluster
from tfps.runtime.worker.executor_choice import ExecutorChoice

RANDOM = np.random.default_rng(0)
IDS, NUMBERS = RANDOM.integers(0, 50, (96, 4)), RANDOM.normal(size=(96, 8)).astype("float32")
LABELS = RANDOM.integers(0, 3, 96)
POOL = ExecutorChoice(is_one_thread=False, reason="this test")
ONE_THREAD = ExecutorChoice(is_one_thread=True, reason="this test")
TOLERANCE = 1e-6  # where TensorFlow fuses operations for the thread pool only

pytestmark = pytest.mark.timeout(180)


class UsersGather(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return tf.gather(tf.ones([50, 8]), tf.cast(x, tf.int32), name="users")  # the line


class OldControlFlow(keras.layers.Layer):
    """Has operations that TensorFlow refuses on one thread."""

    def call(self, x: Any) -> Any:
        switched = tf.raw_ops.Switch(data=tf.stop_gradient(x), pred=True)
        return x + tf.raw_ops.Merge(inputs=list(switched)).output


PROGRAMS: dict[str, tuple[Callable[[], list[Any]], Any]] = {
    "dense": (
        lambda: [
            keras.layers.Dense(16, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2, seed=3),
        ],
        NUMBERS,
    ),
    "rows of a table": (lambda: [keras.layers.Embedding(50, 8), keras.layers.Flatten()], IDS),
    "recurrent": (lambda: [keras.layers.Embedding(50, 8), keras.layers.SimpleRNN(6)], IDS),
}


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster(workers=1, ps=1).cluster_resolver)
    yield strategy
    strategy.close()


def _sparse_adagrad() -> Any:
    return tfps.optimizers.SparseUpdates(keras.optimizers.Adagrad(0.1))


def _use(choice: ExecutorChoice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfps.runtime.worker.fit_loop.choose_executor", lambda facts: choice)


def _model(
    strategy: tfps.ParameterServerStrategy,
    layers: list[Any],
    inputs: Any,
    make_optimizer: Callable[[], Any] = keras.optimizers.SGD,
) -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        first = keras.Input(inputs.shape[1:], dtype=inputs.dtype)
        model = keras.Sequential([first, *layers, keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(make_optimizer(), loss, metrics=["accuracy"])
    return model


@pytest.mark.rare
@pytest.mark.quick("dense")
@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_are_equal(
    program: str, strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, inputs = PROGRAMS[program]
    results: list[Any] = []
    weights: Any = None
    for kind in ("one thread: ", "thread pool: "):
        model = _model(strategy, make(), inputs, _sparse_adagrad)
        weights = weights or model.get_weights()
        model.set_weights(weights)
        options: Any = {"batch_size": 16, "verbose": 0}
        history = model.fit(inputs, LABELS, epochs=2, shuffle=False, **options).history
        evaluated = model.evaluate(inputs, LABELS, **options)
        predicted = model.predict(inputs, **options)
        executors = strategy.stats().executors
        assert [executors[each][: len(kind)] for each in ("train", "test", "predict")] == 3 * [
            kind
        ], executors
        results.append([*history.values(), evaluated, predicted, *model.get_weights()])
        _use(POOL, monkeypatch)
    for on_one_thread, on_pool in zip(*results, strict=True):
        np.testing.assert_allclose(on_one_thread, on_pool, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.rare
@pytest.mark.parametrize(
    ("layers", "executor", "text"),
    [
        (lambda: [keras.layers.Embedding(50, 8)], "one thread", "/GatherV2 (GatherV2)"),
        (lambda: [UsersGather()], "thread pool", "# the line"),
    ],
)
def test_an_error_names_its_operation_on_both(
    layers: Callable[[], list[Any]],
    executor: str,
    text: str,
    strategy: tfps.ParameterServerStrategy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for is_chosen in (True, False):
        model = _model(strategy, [*layers(), keras.layers.Flatten()], IDS)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"99 is not in \[0, 50\)") as info:
            model.fit(np.full([32, 4], 99), LABELS[:32], batch_size=16, verbose=0)
        assert text in str(info.value)
        assert not is_chosen or strategy.stats().executors["train"].startswith(executor)
        _use(POOL, monkeypatch)


@pytest.mark.rare
@pytest.mark.parametrize(
    ("is_forced", "reason"),
    [
        (False, "Merge is not supported on one thread"),
        (True, "Single-threaded executor does not support switch op"),
    ],
    ids=["by the rule", "by TensorFlow"],
)
def test_a_graph_that_one_thread_refuses_runs_on_the_pool(
    is_forced: bool,
    reason: str,
    strategy: tfps.ParameterServerStrategy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tfps")
    results = []
    for is_first in (True, False):
        if is_forced or not is_first:
            _use(ONE_THREAD if is_first else POOL, monkeypatch)
        model = _model(strategy, [OldControlFlow()], NUMBERS)
        options: Any = {"batch_size": 16, "epochs": 3, "shuffle": False, "verbose": 0}
        history = model.fit(NUMBERS, LABELS, **options).history
        assert model.optimizer.iterations.numpy() == 18
        results.append([*history.values(), *model.get_weights()])
        if is_first:
            messages = [record.getMessage() for record in caplog.records]
            (line,) = (text for text in messages if "thread pool" in text)
            assert reason in line
            assert reason in strategy.stats().executors["train"]
    for refused, on_pool in zip(*results, strict=True):
        np.testing.assert_array_equal(refused, on_pool)


EARLY_START = """
import keras, numpy as np, tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(2)
print(tf.ones([2]))  # TensorFlow starts, with these threads
import tfps
with tfps.LocalCluster(workers=1, ps=1) as cluster:
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones([4, 3]), tf.ones([4, 1]))).repeat(8)
    model.fit(data, verbose=0)
    print(int(model.optimizer.iterations.numpy()), strategy.stats().executors["train"])
    strategy.close()
"""


@pytest.mark.slow
def test_a_chief_that_used_tensorflow_before_trains_from_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(EARLY_START)
    result = run_command([sys.executable, "early.py"], deadline_s=90, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "8 thread pool: the chief started TensorFlow before" in result.stdout
