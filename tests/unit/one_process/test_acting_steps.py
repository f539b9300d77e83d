"""Callbacks that name their steps act there, and no step follows a loss that is not finite."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tfps.checkpoint.retention import KeepLatest
from tfps.training.acting_steps import next_action_step

pytestmark = pytest.mark.timeout(180)

Make = Callable[..., tfps.ParameterServerStrategy]
STEPS, BATCH, EVERY = 60, 4, 25
X = np.random.default_rng(0).random((STEPS * BATCH, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


def compiled(**options: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    return model


def in_scope(strategy: tfps.ParameterServerStrategy, **options: Any) -> keras.Model:
    with strategy.scope():
        return compiled(**options)


class Own(keras.callbacks.ModelCheckpoint):
    """A subclass that says by itself when it saves."""

    def _should_save_on_batch(self, batch: int) -> bool:
        return batch in (9, 29)


def saved_steps(
    strategy: tfps.ParameterServerStrategy,
    folder: Path,
    *,
    kind: type[keras.callbacks.ModelCheckpoint] = keras.callbacks.ModelCheckpoint,
    steps_per_execution: int = 1,
    epochs: int = 2,
) -> dict[str, int]:
    """Return which update each file of two epochs holds."""
    model = in_scope(strategy, steps_per_execution=steps_per_execution)
    path = str(folder / "{epoch}-{batch}.weights.h5")
    callback = kind(path, save_freq=EVERY, save_weights_only=True)
    model.fit(X, Y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[callback])
    found, plain = {}, compiled()
    for file in sorted(folder.iterdir()):
        plain.load_weights(file)
        found[file.name.split(".")[0]] = int(plain.optimizer.iterations.numpy())
    return found


@pytest.mark.rare
def test_a_checkpoint_has_the_step_of_its_name(make_strategy: Make, tmp_path: Path) -> None:
    expected = {"1-25": 25, "1-50": 50, "2-15": 75, "2-40": 100}
    assert saved_steps(make_strategy(), tmp_path) == expected


@pytest.mark.repeats
@pytest.mark.parametrize("setting", ["sampled", "lock_step"])
def test_whatever_the_setting(make_strategy: Make, tmp_path: Path, setting: str) -> None:
    expected = {"1-25": 25, "1-50": 50, "2-15": 75, "2-40": 100}
    assert saved_steps(make_strategy(batch_callbacks=setting), tmp_path) == expected


@pytest.mark.rare
def test_a_subclass_says_when_it_saves(make_strategy: Make, tmp_path: Path) -> None:
    expected = {"1-10": 10, "1-30": 30, "2-10": 70, "2-30": 90}
    assert saved_steps(make_strategy(), tmp_path, kind=Own) == expected


@pytest.mark.rare
def test_executions_of_several_steps(make_strategy: Make, tmp_path: Path) -> None:
    found = saved_steps(make_strategy(), tmp_path, steps_per_execution=10)
    assert found == {"1-30": 30, "1-60": 60, "2-30": 90, "2-60": 120}


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("mode", "late"),
    [
        (lambda: tfps.BoundedStaleness(2), 0),
        (lambda: tfps.LocalSteps(10), 5),  # until the end of its period
    ],
)
def test_modes(make_strategy: Make, tmp_path: Path, mode: Callable[[], Any], late: int) -> None:
    found = saved_steps(make_strategy(mode()), tmp_path, epochs=1)
    assert found.keys() == {"1-25", "1-50"}
    assert found["1-25"] == 25 + late
    assert found["1-50"] == 50


@pytest.mark.repeats
def test_whole_rounds(make_strategy: Make, tmp_path: Path) -> None:
    found = saved_steps(make_strategy(tfps.Synchronous()), tmp_path, epochs=1)
    assert found == {"1-25": 13, "1-50": 25}  # rounds of two workers


@pytest.mark.repeats
def test_a_backup_goes_on_from_its_step(make_strategy: Make, tmp_path: Path) -> None:
    model, folder = in_scope(make_strategy()), tmp_path / "backup"

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise KeyboardInterrupt

    def backup() -> Any:
        return keras.callbacks.BackupAndRestore(folder, save_freq=EVERY)

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, batch_size=BATCH, verbose=0, callbacks=[backup(), Interrupt()])
    model.fit(X, Y, batch_size=BATCH, epochs=0, verbose=0, callbacks=[backup()])
    assert int(model.optimizer.iterations.numpy()) == 50


@pytest.mark.repeats
def test_checkpoints_of_a_manager(make_strategy: Make, tmp_path: Path) -> None:
    model = in_scope(make_strategy())
    manager = tfps.CheckpointManager(model, tmp_path, keep=KeepLatest(9))
    saving = tfps.callbacks.Checkpoint(manager, every_steps=EVERY)
    model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[saving])
    found = [(each.step, each.counters.versions[0]) for each in manager.checkpoints]  # type: ignore[union-attr]
    assert found == [(25, 25), (50, 50), (75, 75), (100, 100)]


class Board(keras.callbacks.TensorBoard):
    """Keeps the losses that it would write."""

    written: dict[int, float]

    @property
    def summary(self) -> Any:
        summary = super().summary
        return types.SimpleNamespace(
            create_file_writer=summary.create_file_writer,
            record_if=summary.record_if,
            scalar=self.scalar,
        )

    def scalar(self, name: str, value: Any, step: int) -> None:
        if name == "batch_loss" and step % self.update_freq == 0:
            self.written[step] = float(value)


@pytest.mark.repeats
def test_tensorboard_writes_what_its_step_has_brought(make_strategy: Make, tmp_path: Path) -> None:
    model, plain = in_scope(make_strategy()), compiled()
    plain.set_weights(model.get_weights())
    board = Board(tmp_path, update_freq=20)
    board.written = {}
    model.optimizer.learning_rate = 0.0  # so that the loss says which batches were seen
    model.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[board])
    assert board.written == {
        steps: pytest.approx(
            plain.evaluate(X[: steps * BATCH], Y[: steps * BATCH], batch_size=BATCH, verbose=0),
            rel=1e-5,
        )
        for steps in (20, 40, 60)
    }


def check_nan(strategy: tfps.ParameterServerStrategy) -> None:
    """After 20 steps each worker gets a batch whose loss is no number, and takes no other."""
    model, bad = in_scope(strategy), np.full_like(X, np.nan)
    before = strategy.stats().examples_seen
    history = model.fit(
        np.concatenate([X[: 20 * BATCH], *[bad] * 20]),
        np.concatenate([Y[: 20 * BATCH], *[Y] * 20]),
        batch_size=BATCH,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    ).history
    steps = (strategy.stats().examples_seen - before) // BATCH
    assert np.isnan(history["loss"]).tolist() == [True]
    assert 21 <= steps <= 22


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_training(make_strategy: Make) -> None:
    check_nan(make_strategy())


@pytest.mark.repeats
@pytest.mark.parametrize(
    "mode", [lambda: tfps.BoundedStaleness(2), lambda: tfps.LocalSteps(10), tfps.Synchronous]
)
def test_modes_end_as_well(make_strategy: Make, mode: Callable[[], Any]) -> None:
    check_nan(make_strategy(mode()))


@pytest.mark.parametrize(
    ("every", "seen", "per_call", "expected"), [(25, 0, 1, 25), (25, 10, 1, 15), (25, 0, 10, 30)]
)
def test_the_next_step(every: int, seen: int, per_call: int, expected: int) -> None:
    callback = keras.callbacks.ModelCheckpoint("a.keras", save_freq=every)
    callback._batches_seen_since_last_saving = seen
    found = next_action_step(
        [callback], done_steps=0, steps_per_call=per_call, includes_logging=True
    )
    assert found == expected
    assert callback._batches_seen_since_last_saving == seen
