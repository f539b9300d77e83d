"""A disk that is really full, under servers and chief: training goes on and nothing is harmed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import pytest

import tfps
from tests.cluster.checkpoint.small_model import (
    STEPS,
    X,
    Y,
    assert_same,
    fit,
    small_model_on,
    state_of,
)
from tests.messages import raises
from tests.saves import join_saves
from tfps.checkpoint import KeepLatest
from tfps.errors import CheckpointNotSaved

pytestmark = pytest.mark.timeout(180)

DISK = "400k"


class Disk:
    """A small file system of its own, which can be full or read-only.

    Args:
        path: where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._ballast = path, path / "ballast"

    def fill(self) -> None:
        """Write until no byte is free."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink()

    def allow(self, access: str) -> None:
        """Let all users write (``rw``), or none (``ro``), not even root."""
        subprocess.run(["mount", "-o", f"remount,{access}", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tfps-test", str(path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root only, outside of closed containers")
    yield Disk(path)
    subprocess.run(["umount", "-l", str(path)], check=True)


class Events(keras.callbacks.Callback):
    """Changes the disk when an epoch begins and no save is under way."""

    def __init__(
        self, manager: tfps.CheckpointManager, at: dict[int, list[Callable[[], None]]]
    ) -> None:
        super().__init__()
        self.manager, self.at = manager, at

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        join_saves()
        for event in self.at.get(epoch, []):
            event()


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.rare
@pytest.mark.parametrize("shared", [None, False], ids=["shared", "streamed"])
def test_training_goes_on_and_the_last_one_is_an_error(
    shared: bool | None,
    strategy: tfps.ParameterServerStrategy,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The disk is full in epochs 2 and 3, read-only in 4, writable in 5, full for good in 6."""
    monkeypatch.setattr("tfps.checkpoint.attempts.FIRST_PAUSE_S", 0.0)
    model = small_model_on(strategy)
    folder = disk.path / "saved"
    manager = tfps.CheckpointManager(model, folder, shared=shared, keep=KeepLatest(9))
    before: dict[str, bytes] = {}
    events = {
        1: [lambda: before.update(_files(folder)), disk.fill],
        3: [disk.free, lambda: disk.allow("ro")],
        4: [lambda: disk.allow("rw")],
        5: [disk.fill],
    }
    done = strategy.stats().updates_applied
    callbacks = [Events(manager, events), tfps.callbacks.Checkpoint(manager)]
    with raises(CheckpointNotSaved, "No space left on device"):
        model.fit(X, Y, batch_size=16, epochs=6, verbose=0, callbacks=callbacks)
    assert strategy.stats().updates_applied == done + 6 * STEPS
    assert [one.epoch for one in manager.checkpoints] == [1, 5]
    # 2 and 3, then 4; then 6, and once more at the end.
    assert caplog.text.count("No space left on device") >= 4
    assert caplog.text.count("Read-only file system") >= 1
    now = _files(folder)
    assert before.items() <= now.items()
    assert not [name for name in now if "writing" in name]
    disk.free()
    manager.save(epoch=6, background=False)
    saved = state_of(model)
    fit(model)
    manifest = manager.restore_latest()
    assert manifest is not None
    assert manifest.epoch == 6
    assert_same(model, saved)
