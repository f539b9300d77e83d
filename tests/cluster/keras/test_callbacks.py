"""Keras's callbacks do what they do on one machine; hooks may stop, save, evaluate and assign."""

from __future__ import annotations

import csv
import signal
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.numbers.comparison import LABELS, STEPS, Comparison, X, compiled, fit, iterations

callbacks = keras.callbacks
VALIDATION = (X[::-1].copy(), LABELS)

# Callbacks of all kinds see what they shall in tests/cluster/training/test_callbacks.py.
pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]


def _folder(parent: Path) -> Path:
    """A new one: a program runs twice."""
    folder = parent / str(len(list(parent.iterdir())))
    folder.mkdir()
    return folder


class Interrupt(keras.callbacks.Callback):
    """Ends training as Ctrl-C does."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise KeyboardInterrupt


def test_scheduling_logging_and_stopping(comparison: Comparison, tmp_path: Path) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        log = _folder(tmp_path) / "log.csv"
        seen: list[float] = []
        history = fit(
            model,
            epochs=9,
            validation_data=VALIDATION,
            callbacks=[
                callbacks.CSVLogger(str(log)),
                callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
                callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=0, min_delta=10.0),
                callbacks.TerminateOnNaN(),
                callbacks.LambdaCallback(
                    on_epoch_end=lambda epoch, logs: seen.append(logs["val_loss"])
                ),
                callbacks.EarlyStopping(patience=1, restore_best_weights=True, min_delta=0.2),
            ],
        )
        with log.open() as file:
            rows = [float(row["loss"]) for row in csv.DictReader(file)]
        assert rows == pytest.approx(history["loss"])
        return {**history, "seen": seen}

    comparison.run(use=use)


def test_checkpoints_every_few_steps(comparison: Comparison, tmp_path: Path) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        folder = _folder(tmp_path)
        fit(
            model,
            callbacks=[
                callbacks.ModelCheckpoint(str(folder / "{epoch}-{batch}.keras"), save_freq=3),
                callbacks.ModelCheckpoint(
                    str(folder / "best.weights.h5"),
                    monitor="loss",
                    save_best_only=True,
                    save_weights_only=True,
                ),
            ],
        )
        files = sorted(file.name for file in folder.glob("*.keras"))
        assert (folder / "best.weights.h5").exists()
        saved = [keras.saving.load_model(folder / file) for file in files]
        versions = [int(each.optimizer.iterations.numpy()) for each in saved]
        # Workers do not wait for a callback that only saves: it may save a later version.
        assert all(after >= n for after, n in zip(versions, (3, 6), strict=True))
        return {"files": [len(files)]}

    comparison.run(use=use)


def test_backup_is_restored_after_an_interruption(comparison: Comparison, tmp_path: Path) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        folder = _folder(tmp_path)
        with pytest.raises(KeyboardInterrupt):
            fit(model, epochs=4, callbacks=[callbacks.BackupAndRestore(folder), Interrupt()])
        model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
        return fit(model, epochs=4, callbacks=[callbacks.BackupAndRestore(folder)])

    model = comparison.run(use=use)
    assert iterations(model) == 4 * STEPS


def test_moving_averages_are_swapped_in(comparison: Comparison) -> None:
    def make() -> keras.Model:
        return compiled(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))

    def use(model: keras.Model) -> dict[str, Any]:
        return fit(model, validation_data=VALIDATION, callbacks=[callbacks.SwapEMAWeights()])

    comparison.run(make, use)


def test_tensorboard_writes_what_it_writes_on_one_machine(
    comparison: Comparison, tmp_path: Path
) -> None:
    folders: list[Path] = []

    def use(model: keras.Model) -> dict[str, Any]:
        folders.append(_folder(tmp_path))
        board = callbacks.TensorBoard(folders[-1], histogram_freq=1, update_freq=2)
        return fit(model, validation_data=VALIDATION, callbacks=[board])

    comparison.run(use=use)
    written = [sorted({file.parent.name for file in f.rglob("*tfevents*")}) for f in folders]
    assert written[0] == written[1] == ["train", "validation"]


HOOKS = [
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_epoch_end",
    "on_test_begin",
    "on_test_batch_end",
    "on_test_end",
]


def test_every_hook_can_stop_the_training(comparison: Comparison) -> None:
    """Keras honours it at its next look, which differs by hook; so it does here."""

    def use(model: keras.Model) -> dict[str, Any]:
        done: dict[str, Any] = {}
        for name in HOOKS:
            stop = callbacks.Callback()

            def act(*_: Any, **__: Any) -> None:
                model.stop_training = True

            setattr(stop, name, act)
            before = iterations(model)
            epochs = fit(model, epochs=3, validation_data=VALIDATION, callbacks=[stop])["loss"]
            done[name] = [len(epochs), iterations(model) - before]
        return done

    comparison.run(use=use)


class BusyCallback(keras.callbacks.Callback):
    """Looks at everything, and changes something, in the middle of an epoch."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.seen: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.1 / (batch + 1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            self.seen += self.model.evaluate(*VALIDATION, verbose=0)
            self.seen.append(self.model.predict(X, verbose=0))
            self.model.save(self.folder / "model.keras")
            loaded = keras.saving.load_model(self.folder / "model.keras")
            self.seen += loaded.get_weights()
            self.model.set_weights([weight * 0.9 for weight in self.model.get_weights()])

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(logs["loss"])

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(logs["outputs"])


def test_hooks_that_evaluate_predict_save_and_assign(
    comparison: Comparison, tmp_path: Path
) -> None:
    def use(model: keras.Model) -> dict[str, Any]:
        busy = BusyCallback(_folder(tmp_path))
        fit(model, validation_data=VALIDATION, callbacks=[busy])
        return {"seen": busy.seen}

    comparison.run(use=use)


def test_fit_again_after_ctrl_c(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = compiled()

    class CtrlC(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        fit(model, epochs=10_000, callbacks=[CtrlC()])
    before = iterations(model)
    fit(model)
    assert iterations(model) == before + 2 * STEPS
