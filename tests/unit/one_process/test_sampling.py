"""How the chief follows what the workers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tfps.training.report import step_rate
from tfps.training.run import ticket_run

pytestmark = pytest.mark.repeats

HOUR_S = 3600.0
STEPS = 6
X = np.ones((STEPS, 2), "float32")


@pytest.fixture
def model(
    make_strategy: Callable[..., tfps.ParameterServerStrategy], monkeypatch: pytest.MonkeyPatch
) -> keras.Model:
    """A model whose progress is not sampled before the end."""
    for period in ("SAMPLE_PERIOD_S", "LONGEST_SAMPLE_PERIOD_S"):
        monkeypatch.setattr(step_rate, period, HOUR_S)
    with make_strategy().scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


def test_the_end_of_an_epoch_needs_no_sample_in_time(model: keras.Model) -> None:
    model.fit(X, X[:, :1], batch_size=1, verbose=0)
    assert int(model.optimizer.iterations) == STEPS
    assert model.distribute_strategy.run_state.last_run.samples == 1
    model.evaluate(X, X[:, :1], batch_size=1, verbose=0)


def test_a_batch_that_is_followed_by_a_hook_needs_none_either(model: keras.Model) -> None:
    seen: list[Any] = []
    hook = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
    model.fit(X, X[:, :1], batch_size=1, verbose=0, callbacks=[hook])
    assert seen == list(range(STEPS))


def test_ctrl_c_in_a_hook_waits_for_no_worker(
    model: keras.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[ticket_run.TicketRun] = []

    def interrupt(batch: int, logs: Any) -> None:
        monkeypatch.setattr(ticket_run.TicketRun, "drain", drained.append)
        raise KeyboardInterrupt

    hook = keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, X[:, :1], batch_size=1, verbose=0, callbacks=[hook])
    assert drained == []
    monkeypatch.undo()
    before = int(model.optimizer.iterations)
    model.fit(X, X[:, :1], batch_size=1, verbose=0)
    assert int(model.optimizer.iterations) == before + STEPS
