"""A plain Keras model in one process: saved, restored, refused, kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.messages import raises
from tests.saves import join_saves
from tfps.checkpoint import KeepBest, KeepLatest
from tfps.errors import CheckpointError, ConfigError

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(axis=1)


def _model(*, width: int = 8, optimizer: Any = None, dtype: str | None = None) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(width, "relu", dtype=dtype),
            keras.layers.Dropout(0.5),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer or keras.optimizers.Adam(0.01), "mse")
    return model


def _state(model: keras.Model) -> list[np.ndarray[Any, Any]]:
    optimizer = [] if model.optimizer is None else model.optimizer.variables
    return [np.asarray(v) for v in [*model.variables, *optimizer]]


def _fit(model: keras.Model, **options: Any) -> None:
    model.fit(X, Y, batch_size=8, verbose=0, shuffle=False, **options)


def _assert_same(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.quick("None")
@pytest.mark.parametrize("chunk_bytes", [None, "40"])
def test_training_goes_on_as_if_nothing_had_happened(
    chunk_bytes: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a model that was never trained; dropout included. Also with blocks of a row or two."""
    if chunk_bytes:
        monkeypatch.setenv("TFPS_CHUNK_BYTES", chunk_bytes)
    model = _model()
    _fit(model, epochs=2)
    manager = tfps.CheckpointManager(model, tmp_path)
    path = manager.save(epoch=2, step=8, metrics={"loss": np.float32(0.5), "odd": float("nan")})
    saved = _state(model)
    _fit(model)  # while it is being written
    manager.wait()
    assert manager.last_pause_s is not None
    assert manager.last_seconds is not None
    assert path.is_dir()
    files = len(list(path.glob("*.index")))
    assert files == 1 if chunk_bytes is None else files > 20
    expected = _state(model)
    fresh = _model()
    manifest = tfps.CheckpointManager(fresh, tmp_path).restore_latest()
    assert manifest is not None
    assert (manifest.epoch, manifest.step, manifest.metrics) == (2, 8, {"loss": 0.5})
    assert manifest.counters is None
    assert set(manifest.package_versions) == {"python", "tfps", "tensorflow", "keras", "numpy"}
    _assert_same(_state(fresh), saved)
    _fit(fresh)
    _assert_same(_state(fresh), expected)


@pytest.mark.rare
def test_mixed_precision_and_integers(tmp_path: Path) -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    model = _model(optimizer=optimizer, dtype="bfloat16")
    _fit(model)
    manager = tfps.CheckpointManager(model, tmp_path)
    manager.save(background=False)
    saved = _state(model)
    _fit(model)
    manager.restore(1)
    _assert_same(_state(model), saved)


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    tfps.CheckpointManager(_model(), tmp_path).save(background=False)
    other = _model(width=9, optimizer=keras.optimizers.SGD(0.1))
    _fit(other)
    before = _state(other)
    with pytest.raises(CheckpointError) as raised:
        tfps.CheckpointManager(other, tmp_path).restore(1)
    message = str(raised.value)
    assert "model/dense/kernel" in message
    assert "float32 (4, 8) in the checkpoint, float32 (4, 9) in the model" in message
    assert "in the checkpoint only: optimizer/momentums/model/dense/kernel" in message
    assert "nothing was restored" in message
    _assert_same(_state(other), before)


@pytest.mark.rare
def test_weights_alone_fit_another_optimizer_or_none(tmp_path: Path) -> None:
    model = _model()
    _fit(model)
    tfps.CheckpointManager(model, tmp_path).save(background=False)
    other = _model(optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
    tfps.CheckpointManager(other, tmp_path).restore(1, weights_only=True)
    _assert_same(other.get_weights(), model.get_weights())
    assert int(other.optimizer.iterations) == 0
    bare = keras.models.clone_model(model)  # not compiled
    tfps.CheckpointManager(bare, tmp_path).restore(1)
    _assert_same(bare.get_weights(), model.get_weights())


def test_retention_after_each_save(tmp_path: Path) -> None:
    model = _model()
    keep = tfps.checkpoint.AnyOf(KeepLatest(2), KeepBest("loss"))
    manager = tfps.CheckpointManager(model, tmp_path, keep=keep)
    for number, loss in enumerate((0.5, 0.1, 0.3, 0.4, 0.2), start=1):
        manager.save(epoch=number, metrics={"loss": loss})
    manager.wait()
    assert [manifest.number for manifest in manager.checkpoints] == [2, 4, 5]
    # Another process goes on with the numbers.
    again = tfps.CheckpointManager(model, tmp_path, keep=keep)
    assert again.save(background=False).name == "checkpoint-000006"
    assert [manifest.number for manifest in again.checkpoints] == [2, 5, 6]
    latest = again.latest
    assert latest is not None
    assert latest.number == 6


def test_an_error_in_the_background_is_raised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next call of any kind raises what ended the save, and the one after that works."""
    model = _model()
    manager = tfps.CheckpointManager(model, tmp_path)

    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    for call in (manager.wait, manager.save, manager.restore_latest):
        with monkeypatch.context() as patch:
            patch.setattr("tfps.checkpoint.snapshot.write_bundle", fail)
            manager.save()
            join_saves()
        assert f"cannot save a checkpoint in {tmp_path}: the disk is full" in caplog.text
        with raises(OSError, str(tmp_path), received="the disk is full"):
            call()
        assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patch:
        patch.setattr("tfps.checkpoint.snapshot.write_bundle", fail)
        with raises(OSError, str(tmp_path), received="the disk is full"):
            _fit(model, epochs=3, callbacks=[tfps.callbacks.Checkpoint(manager)])
    manager.save(background=False)
    assert len(manager.checkpoints) == 1


@pytest.mark.slow
def test_the_callback_saves_epochs_and_training_is_resumed(tmp_path: Path) -> None:
    def train(epochs: int) -> tuple[keras.Model, tfps.CheckpointManager]:
        keras.utils.set_random_seed(3)
        model = _model()
        manager = tfps.CheckpointManager(model, tmp_path)
        last = manager.restore_latest()
        _fit(
            model,
            epochs=epochs,
            initial_epoch=0 if last is None else last.epoch,
            callbacks=[tfps.callbacks.Checkpoint(manager)],
        )
        return model, manager

    train(2)
    resumed, manager = train(4)
    keras.utils.set_random_seed(3)
    uninterrupted = _model()
    _fit(uninterrupted, epochs=4)
    _assert_same(_state(resumed), _state(uninterrupted))
    assert [manifest.epoch for manifest in manager.checkpoints] == [2, 3, 4]
    assert all("loss" in manifest.metrics for manifest in manager.checkpoints)


@pytest.mark.repeats
def test_the_callback_saves_after_steps(tmp_path: Path) -> None:
    model = _model()
    manager = tfps.CheckpointManager(model, tmp_path, keep=KeepLatest(9))
    callback = tfps.callbacks.Checkpoint(manager, every_steps=3)
    _fit(model, epochs=2, callbacks=[callback])
    assert [(one.epoch, one.step) for one in manager.checkpoints] == [(0, 3), (1, 6)]
    fresh = _model()
    tfps.CheckpointManager(fresh, tmp_path).restore(1)
    assert int(fresh.optimizer.iterations) == 3


@pytest.mark.rare
def test_the_callback_counts_the_steps_of_an_execution(tmp_path: Path) -> None:
    model = _model()
    model.compile("adam", "mse", steps_per_execution=4)
    manager = tfps.CheckpointManager(model, tmp_path, keep=KeepLatest(9))
    x = np.zeros([24, 4], "float32")
    callback = tfps.callbacks.Checkpoint(manager, every_steps=6)
    model.fit(x, x[:, 0], batch_size=2, epochs=1, verbose=0, callbacks=[callback])
    # At the end of the executions in which the 6th and the 12th are done.
    assert [one.step for one in manager.checkpoints] == [8, 12]


def test_a_model_without_variables_is_refused(tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse")
    manager = tfps.CheckpointManager(model, tmp_path)
    assert manager.restore_latest() is None
    assert manager.latest is None
    with raises(CheckpointError, "model", received="not built", remedy="model.build"):
        manager.save()
    tfps.CheckpointManager(_model(), tmp_path).save(background=False)
    with raises(CheckpointError, "model", received="not built", remedy="model.build"):
        manager.restore_latest()


def test_mistakes_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        tfps.CheckpointManager(3, 4, keep=5, shared="yes")  # type: ignore[arg-type]
    for name in ("model", "directory", "keep", "shared"):
        assert f"{name}: received" in str(raised.value)
    manager = tfps.CheckpointManager(_model(), tmp_path)
    with pytest.raises(ConfigError) as raised:
        tfps.callbacks.Checkpoint(manager, every_epochs=0, every_steps=True)
    assert len(raised.value.problems) == 3
    with raises(ConfigError, "manager", received="'folder'", remedy="CheckpointManager"):
        tfps.callbacks.Checkpoint("folder")
