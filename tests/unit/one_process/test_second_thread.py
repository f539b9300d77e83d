"""A second thread reads, saves, evaluates, predicts or trains while `fit` runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tfps.errors import UnsupportedError

pytestmark = pytest.mark.timeout(180)

Make = Callable[..., tfps.ParameterServerStrategy]
STEPS, BATCH = 100, 4
PAUSE_S = 0.02
X = np.random.default_rng(0).random((STEPS * BATCH, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
MODES: dict[str, Callable[[], Any]] = {
    "asynchronous": tfps.Asynchronous,
    "bounded": lambda: tfps.BoundedStaleness(2),
    "local steps": lambda: tfps.LocalSteps(5),
    "synchronous": tfps.Synchronous,
    "backup": lambda: tfps.Synchronous(backup_workers=1),
}


def small(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    return model


def iterations(model: keras.Model) -> int:
    return int(model.optimizer.iterations.numpy())


class BetweenSteps(keras.callbacks.Callback):
    """Lets the second thread begin in the middle of the epoch, and waits for its first call."""

    def __init__(self, called: threading.Event) -> None:
        super().__init__()
        self.begins, self._called = threading.Event(), called

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == STEPS // 4:
            self.begins.set()
            assert self._called.wait(60)


@contextlib.contextmanager
def repeated(act: Callable[[], object]) -> Iterator[BetweenSteps]:
    """Call it in a second thread while `fit` runs with the callback; its error is raised here."""
    called, done, errors = threading.Event(), threading.Event(), list[BaseException]()
    hook = BetweenSteps(called)

    def repeat() -> None:
        hook.begins.wait(60)
        try:
            while not done.wait(PAUSE_S):
                act()
                called.set()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
        called.set()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield hook
    finally:
        hook.begins.set()
        done.set()
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def acts(model: keras.Model, other: keras.Model, folder: Path) -> dict[str, Callable[[], object]]:
    return {
        "iterations": lambda: iterations(model),
        "each weight": lambda: [weight.numpy() for weight in model.weights],
        "get_weights": model.get_weights,
        "assign": lambda: other.layers[0].bias.assign(np.ones(3)),
        "save": lambda: model.save(folder / "model.keras"),
        "save_weights": lambda: model.save_weights(folder / "model.weights.h5"),
        "checkpoint": tfps.CheckpointManager(model, folder / "checkpoints").save,
        "evaluate": lambda: model.evaluate(X[:80], Y[:80], batch_size=BATCH, verbose=0),
        "predict": lambda: model.predict(X[:8], verbose=0),
        "predict more": lambda: model.predict(X[:80], batch_size=4, verbose=0),
        "fit another": lambda: other.fit(X[:80], Y[:80], batch_size=8, verbose=0),
        "train_on_batch": lambda: other.train_on_batch(X[:8], Y[:8]),
    }


ACTS = (
    "iterations",
    "each weight",
    "get_weights",
    "assign",
    "save",
    "save_weights",
    "checkpoint",
    "evaluate",
    "predict",
    "predict more",
    "fit another",
    "train_on_batch",
)


def check_epochs(strategy: tfps.ParameterServerStrategy, act: str, folder: Path) -> None:
    model, other = small(strategy), small(strategy)
    in_rounds = isinstance(strategy.consistency, tfps.Synchronous)
    with repeated(acts(model, other, folder)[act]) as hook:
        history = model.fit(
            X,
            Y,
            batch_size=BATCH,
            epochs=2,
            verbose=0,
            validation_data=(X[:80], Y[:80]),
            callbacks=[hook],
        ).history
    if in_rounds:  # which are cut short where a thread drains the workers
        assert strategy.stats().examples_seen == 2 * STEPS * BATCH
    else:
        assert iterations(model) == 2 * STEPS
    assert len(history["loss"]) == len(history["val_mae"]) == 2
    # What the last epoch was shown lies between the losses before and after it.
    assert 0 < history["loss"][1] < history["loss"][0]


@pytest.mark.rare
@pytest.mark.quick("evaluate")
@pytest.mark.parametrize("act", ACTS)
def test_an_epoch_goes_on_after_another_thread(
    make_strategy: Make, tmp_path: Path, act: str
) -> None:
    check_epochs(make_strategy(batch_callbacks="sampled"), act, tmp_path)


@pytest.mark.repeats
@pytest.mark.parametrize("mode", MODES)
def test_modes(make_strategy: Make, tmp_path: Path, mode: str) -> None:
    check_epochs(make_strategy(MODES[mode](), batch_callbacks="sampled"), "iterations", tmp_path)


@pytest.mark.repeats
def test_lock_step(make_strategy: Make, tmp_path: Path) -> None:
    check_epochs(make_strategy(batch_callbacks="lock_step"), "evaluate", tmp_path)


@pytest.mark.repeats
@pytest.mark.parametrize("kind", ["generator", "per worker", "shards"])
def test_inputs(make_strategy: Make, kind: str) -> None:
    model = small(make_strategy(batch_callbacks="sampled"))

    def batches(context: Any = None) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)

    def generator() -> Iterator[Any]:
        for begin in range(0, len(X), BATCH):
            yield X[begin : begin + BATCH], Y[begin : begin + BATCH]

    def shard(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return batches().shard(context.num_input_pipelines, context.input_pipeline_id)

    data = {
        "generator": generator(),
        "per worker": batches,
        "shards": tfps.ShardedDataset(shard, number=4),
    }[kind]
    expected = 2 * STEPS if kind == "per worker" else STEPS  # each worker has all of them
    with repeated(model.get_weights) as hook:
        model.fit(data, verbose=0, callbacks=[hook])
    assert iterations(model) == expected


@pytest.mark.repeats
def test_several_threads(make_strategy: Make, tmp_path: Path) -> None:
    model, other = small(strategy := make_strategy(batch_callbacks="sampled")), small(strategy)
    known = acts(model, other, tmp_path)
    with repeated(known["evaluate"]) as one, repeated(known["predict"]) as two:
        model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[one, two])
    assert iterations(model) == 2 * STEPS


@pytest.mark.slow
@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_fit_waits_for_what_another_thread_has_begun(make_strategy: Make, method: str) -> None:
    """The first step that trains moves variables: the steps of the other would not find them."""
    model, begun = small(make_strategy()), threading.Event()
    returned, ended = list[Any](), threading.Event()

    class BeginCallback(keras.callbacks.Callback):
        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            begun.set()

        on_predict_batch_end = on_test_batch_end

    def call() -> None:
        data = {"x": X} if method == "predict" else {"x": X, "y": Y}
        options: dict[str, Any] = {
            "batch_size": BATCH,
            "verbose": 0,
            "callbacks": [BeginCallback()],
        }
        try:
            returned.append(getattr(model, method)(**data, **options))
        finally:
            begun.set()
            ended.set()

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(60)
    model.fit(X, Y, batch_size=BATCH, verbose=0)
    assert ended.wait(60)
    thread.join()
    assert len(returned) == 1
    assert iterations(model) == STEPS


@pytest.mark.repeats
def test_one_thread_trains_a_model(make_strategy: Make) -> None:
    model = small(make_strategy(batch_callbacks="sampled"))
    with (
        raises(UnsupportedError, f"{model.name}: ", received="another thread", remedy="Wait"),
        repeated(lambda: model.fit(X, Y, verbose=0)) as hook,
    ):
        model.fit(X, Y, batch_size=BATCH, verbose=0, callbacks=[hook])
    assert iterations(model) == STEPS


@pytest.mark.repeats
def test_a_hook_may_train_on_a_batch(make_strategy: Make) -> None:
    model = small(make_strategy())

    class Train(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch in (3, 7):
                self.model.train_on_batch(X[:8], Y[:8])

    history = model.fit(X[:80], Y[:80], batch_size=BATCH, epochs=2, verbose=0, callbacks=[Train()])
    assert len(history.history["loss"]) == 2
    assert iterations(model) == 2 * (20 + 2)


@pytest.mark.repeats
def test_functions_that_another_thread_schedules(make_strategy: Make) -> None:
    strategy = make_strategy(batch_callbacks="sampled")
    model = small(strategy)
    with strategy.scope():
        counter = keras.Variable(np.zeros(3, "float32"), trainable=False)

    @tf.function
    def count() -> None:
        counter.assign_add(tf.ones([3]))

    calls = 0

    def schedule() -> None:
        nonlocal calls
        strategy.coordinator.schedule(count)
        strategy.coordinator.join()
        calls += 1

    with repeated(schedule) as hook:
        model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[hook])
    assert iterations(model) == 2 * STEPS
    np.testing.assert_array_equal(counter.numpy(), np.full(3, calls))


@pytest.mark.repeats
def test_an_error_that_another_thread_meets_ends_the_training(make_strategy: Make) -> None:
    strategy = make_strategy(batch_callbacks="sampled")
    with strategy.scope():
        model = keras.Sequential([keras.Input((), dtype="int32"), keras.layers.Embedding(8, 2)])
        model.compile("sgd", "mse")
    ids = np.zeros(STEPS * BATCH, "int32")
    ids[-BATCH * 20 :] = 99

    def read() -> None:
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            model.get_weights()

    with pytest.raises(tf.errors.InvalidArgumentError), repeated(read) as hook:
        model.fit(
            ids, np.zeros([len(ids), 2]), batch_size=4, shuffle=False, verbose=0, callbacks=[hook]
        )
