"""Keras's callbacks and a user's own, on two workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.counting import UnitGradients, Visits, mean_output, numbered, visit_counter
from tfps.launch import LocalCluster

EXAMPLES, BATCH, STEPS = 100, 8, 13
X, LABELS = numbered(EXAMPLES)

pytestmark = pytest.mark.timeout(180)


def _fit(model: keras.Model, *callbacks: keras.callbacks.Callback, epochs: int = 1) -> Any:
    return model.fit(
        X, LABELS, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=list(callbacks)
    )


def _iterations(model: keras.Model) -> int:
    return int(model.optimizer.iterations.numpy())


class Weights(keras.callbacks.Callback):
    """Keeps each epoch's weights, and adds a score to its logs."""

    def __init__(self, scores: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.scores = scores
        self.epochs: list[list[np.ndarray]] = []

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.epochs.append(self.model.get_weights())
        if self.scores and logs is not None:
            logs["score"] = self.scores[epoch]


def _assert_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for weight, reference in zip(found, expected, strict=True):
        np.testing.assert_array_equal(weight, reference)


@pytest.mark.repeats
def test_early_stopping_restores_the_best_weights(model: keras.Model) -> None:
    kept = Weights(scores=(3.0, 1.0, 2.0, 0.0))
    stopping = keras.callbacks.EarlyStopping(
        "score", mode="min", patience=1, restore_best_weights=True
    )
    history = _fit(model, kept, stopping, epochs=4)
    assert len(history.epoch) == 3
    assert (kept.epochs[2][0] != kept.epochs[1][0]).any()
    _assert_equal(model.get_weights(), kept.epochs[1])


class Hooks(keras.callbacks.Callback):
    """Notes every call; acts at one step."""

    def __init__(self, *, at: int = -1, act: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.at, self.act = at, act
        self.calls: list[tuple[str, int]] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("begin", batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("end", batch))
        if batch == self.at:
            self.act()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch", epoch))


ALL_CALLS = [(name, step) for step in range(STEPS) for name in ("begin", "end")] + [("epoch", 0)]


@pytest.mark.repeats
def test_own_batch_hook_runs_between_its_update_and_the_next(model: keras.Model) -> None:
    start, seen = _iterations(model), []

    class Lockstep(Hooks):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)
            seen.append(_iterations(self.model) - start)

    hooks = Lockstep()
    _fit(model, hooks)
    assert hooks.calls == ALL_CALLS
    assert seen == [step + 1 for step in range(STEPS)]


@pytest.mark.repeats
def test_sampled_hooks_see_one_version(cluster: Callable[..., LocalCluster]) -> None:
    """Two weights that count updates are read while workers train; then they train on."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=1).cluster_resolver, batch_callbacks="sampled"
    )
    visits = []
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), UnitGradients()])
        visits.append(Visits(EXAMPLES))
        model.compile(keras.optimizers.SGD(-1.0), mean_output, metrics=visits)
    read: list[list[float]] = []

    def look() -> None:
        for _ in range(2):
            read.append([float(weight) for weight in model.get_weights()] + [_iterations(model)])
            time.sleep(0.2)

    hooks = Hooks(at=3, act=look)
    _fit(model, hooks)
    assert hooks.calls == ALL_CALLS
    assert read[0] == read[1]
    assert len(set(read[0])) == 1
    assert 4 <= read[0][0] <= STEPS
    assert model.get_weights() == [STEPS, STEPS]
    assert _iterations(model) == STEPS
    assert visits[0].counts() == [1] * EXAMPLES
    strategy.close()


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("arrays", "sampled"),
        ("generator", "lock_step"),
        ("arrays", "lock_step"),
        ("generator", "sampled"),
    ],
)
def test_epoch_goes_on_after_an_evaluation_in_it(
    kind: str, setting: str, cluster: Callable[..., LocalCluster]
) -> None:
    """The tickets of both are numbered on one server."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=1).cluster_resolver, batch_callbacks=setting
    )
    model = visit_counter(strategy, examples=EXAMPLES)
    evaluated: list[float] = []

    def evaluate() -> None:
        evaluated.append(model.evaluate(X[:24], LABELS[:24], batch_size=BATCH, verbose=0)[0])
        model.predict(X, batch_size=BATCH, verbose=0)  # on the chief: the epoch is under way

    hooks = Hooks(at=3, act=evaluate)
    x, y = (X, LABELS) if kind == "arrays" else (_batches(), None)
    model.fit(x, y, batch_size=BATCH if y is not None else None, verbose=0, callbacks=[hooks])
    assert len(evaluated) == 1
    begun = ("begin", STEPS)  # Keras learns only then that a generator has ended
    assert [call for call in hooks.calls if call != begun] == ALL_CALLS
    assert _iterations(model) == STEPS
    (visits,) = (
        m
        for outer in model.metrics
        for m in getattr(outer, "metrics", [outer])
        if isinstance(m, Visits)
    )
    assert visits.counts() == [1] * EXAMPLES
    stats = strategy.stats()
    assert stats.updates_applied == sum(stats.worker_steps) == STEPS
    assert sum(stats.worker_evaluation_steps) == 3
    strategy.close()


def _batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for begin in range(0, EXAMPLES, BATCH):
        yield X[begin : begin + BATCH], LABELS[begin : begin + BATCH]
