"""Batch hooks are called once per step and in order; those that change something, in time."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.messages import check_message
from tfps.training.batch_callbacks import may_change_things
from tfps.training.batch_hooks import WATCHED_CALLS

pytestmark = pytest.mark.timeout(180)

Make = Callable[..., tfps.ParameterServerStrategy]
STEPS, BATCH = 120, 4
X = np.random.default_rng(0).random((STEPS * BATCH, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


class Hooks(keras.callbacks.Callback):
    """Notes its calls and, without reading a weight, how often workers waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []
        self.waited = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("begin", batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("end", batch))
        run = self.model.distribute_strategy.run_state.run
        self.waited += run is not None and not run.running


def fitted(strategy: tfps.ParameterServerStrategy, *callbacks: Any, **options: Any) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", **options)
    model.fit(X, Y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=list(callbacks))
    return model


def expected_calls(steps: int = STEPS) -> list[tuple[str, int]]:
    return [(hook, batch) for batch in range(steps) for hook in ("begin", "end")]


@pytest.mark.repeats
def test_hooks_that_change_nothing_are_sampled(
    make_strategy: Make, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = Hooks()
    model = fitted(make_strategy(), hooks)
    assert hooks.calls == expected_calls()
    assert WATCHED_CALLS <= hooks.waited < STEPS // 2
    assert int(model.optimizer.iterations.numpy()) == STEPS
    assert not caplog.records


class ChangesLate(Hooks):
    """Changes something in the middle of the epoch, and notes the updates of later steps."""

    def __init__(self, change: Callable[[keras.Model], None]) -> None:
        super().__init__()
        self._change = change
        self.updates: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        if batch == 59:
            self._change(self.model)
        elif batch > 100:
            self.updates.append(int(self.model.optimizer.iterations.numpy()) - batch)


def slower(model: keras.Model) -> None:
    model.optimizer.learning_rate = 1e-3


CHANGES: dict[str, Callable[[keras.Model], None]] = {
    "rate": slower,
    "weights": lambda model: model.set_weights(model.get_weights()),
    "variable": lambda model: model.layers[0].bias.assign_add(np.ones(1)),
    "trains": lambda model: model.train_on_batch(X[:8], Y[:8]),
}


@pytest.mark.quick("rate")
@pytest.mark.parametrize("change", CHANGES)
def test_a_late_change_goes_back_to_lock_step(
    make_strategy: Make, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    hooks = ChangesLate(CHANGES[change])
    fitted(make_strategy(), hooks)
    assert hooks.calls == expected_calls()
    (record,) = [each for each in caplog.records if "batch_callbacks" in each.getMessage()]
    check_message(
        record.getMessage(), "ChangesLate", received="after step 60", remedy="'lock_step'"
    )
    counted = int(record.getMessage().split("counts from step ")[1].split()[0])
    assert 60 < counted <= STEPS + 1
    one_more = int(change == "trains")
    if counted < 100:  # where the epoch was not over by then
        assert set(hooks.updates) == {1 + one_more}


@pytest.mark.repeats
def test_a_late_stop_is_said(make_strategy: Make, caplog: pytest.LogCaptureFixture) -> None:
    hooks = ChangesLate(lambda model: setattr(model, "stop_training", True))
    fitted(make_strategy(), hooks)
    assert hooks.calls == expected_calls(60)
    check_message(caplog.text, "ChangesLate", received="after step 60", remedy="'lock_step'")


@pytest.mark.repeats
def test_hooks_that_change_something_at_once_stay_in_lock_step(
    make_strategy: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Rate(Hooks):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)
            self.model.optimizer.learning_rate = 0.1 / (1 + batch)

    hooks = Rate()
    fitted(make_strategy(), hooks)
    assert hooks.calls == expected_calls()
    assert hooks.waited >= STEPS - 1  # the last one comes after the epoch's run
    assert not caplog.records


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> type[Hooks]:
    """A callback of a module that has the name of a tracker's."""
    module = types.ModuleType("wandb.integration.keras")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class Logger(Hooks):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_begin(batch, logs)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)

    for hook in (Logger.on_train_batch_begin, Logger.on_train_batch_end):
        hook.__module__ = module.__name__
    return Logger


@pytest.mark.repeats
def test_known_trackers_are_sampled(make_strategy: Make, tracker: type[Hooks]) -> None:
    hooks = tracker()
    assert not may_change_things(hooks, kind="train")
    fitted(make_strategy(), hooks)
    assert hooks.calls == expected_calls()
    assert hooks.waited < WATCHED_CALLS // 2


def test_who_may_change_things(tracker: type[Hooks]) -> None:
    assert may_change_things(Hooks(), kind="train")
    assert not may_change_things(Hooks(), kind="test")
    shown = tracker()
    shown.on_train_batch_end = lambda batch, logs=None: None  # type: ignore[method-assign]
    assert may_change_things(shown, kind="train")
    assert not may_change_things(keras.callbacks.TensorBoard(), kind="train")
