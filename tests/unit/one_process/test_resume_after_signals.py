"""Ctrl-C and SIGTERM with `tfps.callbacks.Resume`: `fit` saves, and goes on there later."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.one_process.test_resume import BATCH, EPOCHS, ONES, X, Y, counting, fit, network

pytestmark = pytest.mark.timeout(180)

Make = Callable[..., tfps.ParameterServerStrategy]


class Signal(keras.callbacks.Callback):
    """Sends this process a signal at a hook, while workers go on."""

    def __init__(self, hook: str, *, number: int = signal.SIGINT, times: int = 1) -> None:
        super().__init__()
        self.hook, self.number, self.times = hook, number, times

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._send("epoch begin")

    def on_test_begin(self, logs: Any = None) -> None:
        self._send("validation")

    def on_train_end(self, logs: Any = None) -> None:
        self._send("end")

    def _send(self, hook: str) -> None:
        if hook == self.hook:
            for _ in range(self.times):
                signal.raise_signal(self.number)


class SentAfter(keras.callbacks.Callback):
    """Sends SIGINT after a number of updates, whatever this process does; `fit` waits for that."""

    def __init__(self, strategy: Any, updates: int) -> None:
        super().__init__()
        self.strategy, self.updates = strategy, updates
        self.thread = threading.Thread(target=self._send)

    def on_train_begin(self, logs: Any = None) -> None:
        self.thread.start()

    def on_train_end(self, logs: Any = None) -> None:
        self.thread.join()

    def _send(self) -> None:
        limit_s = time.monotonic() + 60
        while min(self.strategy.stats().versions) < self.updates and time.monotonic() < limit_s:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)


class SlowHook(keras.callbacks.Callback):
    """Counts batches, later than workers take them."""

    count = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.005)
        self.count += 1


def later(folder: Path) -> tfps.callbacks.Resume:
    return tfps.callbacks.Resume(folder, every_s=3600.0)


@pytest.mark.quick("rounds-7")
@pytest.mark.parametrize("updates", [7, 60])
@pytest.mark.parametrize("mode", [None, tfps.Synchronous()], ids=["asynchronous", "rounds"])
def test_each_example_is_used_once_by_workers_that_do_not_wait(
    make_strategy: Make, tmp_path: Path, mode: Any, updates: int
) -> None:
    data = {"x": np.arange(len(ONES)), "y": ONES, "batch_size": 1}
    strategy = make_strategy(mode)
    model, first, second = counting(strategy), SlowHook(), SlowHook()
    with pytest.raises(KeyboardInterrupt):
        fit(model, SentAfter(strategy, updates), first, later(tmp_path), **data)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = counting(make_strategy(mode))
    history = fit(again, second, later(tmp_path), **data)
    assert first.count + second.count == EPOCHS * len(ONES)
    together = 1 if mode is None else 2  # workers, of which an update is the mean
    np.testing.assert_allclose(again.get_weights()[0], EPOCHS * BATCH / together, rtol=1e-6)
    assert int(again.optimizer.iterations.numpy()) == EPOCHS * len(ONES) / together
    assert history.epoch == list(range(EPOCHS))


@pytest.mark.quick("validation-*")
@pytest.mark.parametrize(
    ("hook", "saved"), [("epoch begin", "epoch 1, after 0"), ("validation", "epoch 1, after 12")]
)
def test_a_signal_in_a_hook(
    make_strategy: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], hook: str, saved: str
) -> None:
    strategy = make_strategy()
    with pytest.raises(KeyboardInterrupt):
        fit(network(strategy), Signal(hook), later(tmp_path), validation_data=(X, Y))
    assert saved in capsys.readouterr().out
    model = network(make_strategy())
    history = fit(model, later(tmp_path), validation_data=(X, Y))
    assert len(history.history["val_loss"]) == len(history.history["loss"]) == EPOCHS


class ServerEnds(keras.callbacks.Callback):
    """Asks for a save as a server does that got SIGTERM, from a thread of its own."""

    def __init__(self, strategy: Any) -> None:
        super().__init__()
        self.strategy, self.saved = strategy, [0]
        self.thread = threading.Thread(target=self._ask)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            self.thread.start()

    def on_train_end(self, logs: Any = None) -> None:
        self.thread.join()

    def _ask(self) -> None:
        request = self.strategy.run_state.stop_request
        self.saved = [request.save_for(lambda: True)]


def test_fit_saves_for_a_server_that_ends_and_goes_on(
    make_strategy: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy = make_strategy(tfps.Synchronous())
    model, data = counting(strategy), {"x": np.arange(len(ONES)), "y": ONES, "batch_size": 1}
    ends = ServerEnds(strategy)
    history = fit(model, ends, later(tmp_path), **data)
    assert ends.saved == [True]
    said = capsys.readouterr().out
    assert ", for a server that ends" in said
    assert "the same command" not in said
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2  # that one, and that of the end
    assert history.epoch == list(range(EPOCHS))
    np.testing.assert_allclose(model.get_weights()[0], EPOCHS * BATCH / 2, rtol=1e-6)
    assert not strategy.run_state.stop_request.save_for(lambda: True)  # without a `fit`


def test_a_signal_after_the_last_step(make_strategy: Make, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(network(make_strategy()), Signal("end"), later(tmp_path))
    model = network(make_strategy())
    assert fit(model, later(tmp_path)).epoch == list(range(EPOCHS))


def test_a_second_signal_ends_it_without_a_save(make_strategy: Make, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(network(make_strategy()), Signal("epoch begin", times=2), later(tmp_path))
    assert not list(tmp_path.glob("checkpoint-*"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_the_program_stay(make_strategy: Make, tmp_path: Path) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    try:
        sender = Signal("epoch begin", number=signal.SIGTERM)
        fit(network(make_strategy()), sender, later(tmp_path))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM] * EPOCHS
