"""A checkpoint that cannot be written: training goes on, later hooks try again, the end raises."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.saves import join_saves
from tfps.checkpoint import KeepLatest
from tfps.checkpoint.file_error import file_error
from tfps.errors import CheckpointNotSaved

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(axis=1)


class Clock:
    """Stands for `time` in the callback; each hook that asks finds it so much later."""

    def __init__(self, patch: pytest.MonkeyPatch, *, seconds: float) -> None:
        self.now_s, self.seconds = 0.0, seconds
        patch.setattr("tfps.checkpoint.callback.time", self)

    def monotonic(self) -> float:
        self.now_s += self.seconds
        return self.now_s


class Disk(keras.callbacks.Callback):
    """Lets files become so large only, in some epochs. It comes first."""

    def __init__(self, full: set[int], manager: tfps.CheckpointManager) -> None:
        super().__init__()
        self.full, self.manager = full, manager
        self.limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.there: list[list[int]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        join_saves()
        self.there.append([one.epoch or 0 for one in self.manager.checkpoints])
        limit = 100 if epoch in self.full else self.limit_bytes[0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, self.limit_bytes[1]))


@contextmanager
def _limit_restored() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def manager(tmp_path: Path) -> tfps.CheckpointManager:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(30), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return tfps.CheckpointManager(model, tmp_path / "saved", keep=KeepLatest(2))


def _fit(manager: tfps.CheckpointManager, *, epochs: int, full: set[int]) -> Disk:
    disk = Disk(full, manager)
    callbacks = [disk, tfps.callbacks.Checkpoint(manager)]
    with _limit_restored():
        manager.model.fit(X, Y, epochs=epochs, batch_size=8, verbose=0, callbacks=callbacks)
    return disk


def test_training_goes_on_and_later_hooks_try_again(
    manager: tfps.CheckpointManager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Clock(monkeypatch, seconds=1000.0)
    disk = _fit(manager, epochs=6, full={2, 3})
    # What is there when each epoch begins: two stay, whatever fails.
    assert disk.there == [[], [1], [1, 2], [1, 2], [1, 2], [2, 5]]
    assert [one.epoch for one in manager.checkpoints] == [5, 6]
    assert caplog.text.count("File too large") == 2
    assert "training continues without that checkpoint" in caplog.text
    assert "in 10 s at the earliest; 1 have failed" in caplog.text
    assert "in 20 s at the earliest; 2 have failed" in caplog.text
    assert not [name for name in os.listdir(manager.directory) if name.startswith("writing")]


def test_hooks_within_the_pause_do_not_try(
    manager: tfps.CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, seconds=0.0)
    disk = _fit(manager, epochs=5, full={1})
    assert disk.there == [[], [1], [1], [1], [1]]
    # The end of the training does, whatever the pause, with what training has come to.
    assert [(one.epoch, one.step) for one in manager.checkpoints] == [(1, 4), (5, 20)]
    manager.restore_latest()


def test_the_last_one_is_an_error_at_the_end(
    manager: tfps.CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, seconds=1000.0)
    with raises(CheckpointNotSaved, str(manager.directory), received="File too large"):
        _fit(manager, epochs=3, full={1, 2})
    assert int(manager.model.optimizer.iterations) == 3 * 4
    assert [one.epoch for one in manager.checkpoints] == [1]


def test_a_folder_that_cannot_be_used(manager: tfps.CheckpointManager) -> None:
    """Found before anything is written, by the callback and by `save`."""
    manager.directory.write_text("in the way")
    with raises(CheckpointNotSaved, str(manager.directory), remedy="write into it"):
        _fit(manager, epochs=2, full=set())
    assert int(manager.model.optimizer.iterations) == 2 * 4
    with pytest.raises(CheckpointNotSaved):
        manager.save(background=False)
    manager.directory.unlink()
    manager.save(background=False)
    assert len(manager.checkpoints) == 1


def test_old_ones_that_cannot_be_deleted_are_a_warning(
    manager: tfps.CheckpointManager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> None:
        raise PermissionError("not yours")

    with monkeypatch.context() as patch:
        patch.setattr("tfps.checkpoint.commit.Folder.delete", fail)
        for epoch in (1, 2, 3):
            manager.save(epoch=epoch, background=False)
    assert "checkpoint 3 is saved, but old checkpoints" in caplog.text
    assert len(manager.checkpoints) == 3
    manager.save(epoch=4, background=False)
    assert [one.epoch for one in manager.checkpoints] == [3, 4]


def test_a_lost_server_is_no_matter_of_files() -> None:
    lost = tf.errors.UnavailableError(None, None, "/job:ps/task:0 is lost")
    lost.__cause__ = tf.errors.NotFoundError(None, None, "Resource job/weight does not exist")
    assert file_error(lost, "/saved") is None
    lost.__cause__ = tf.errors.NotFoundError(None, None, "/saved/writing-1; No such file")
    assert file_error(lost, "/saved") is lost.__cause__
