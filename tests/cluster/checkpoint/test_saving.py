"""Saves while `fit` goes on: one version each, and no step waits for the files."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.checkpoint.counting_model import count_of, counting_model, updates_of
from tfps.checkpoint import KeepLatest
from tfps.checkpoint.bundle import Bundle
from tfps.checkpoint.commit import Folder
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.model_snapshot import ModelSnapshot
from tfps.checkpoint.restore import fill, open_restores
from tfps.checkpoint.servers import open_channels
from tfps.checkpoint.shared_folder import SharedFolder
from tfps.checkpoint.snapshot import Snapshot

pytestmark = pytest.mark.timeout(120)

DATA = np.zeros([400, 1], "float32")


def _stored_count(manager: tfps.CheckpointManager, manifest: Manifest) -> int:
    folder = manager.directory / f"checkpoint-{manifest.number:06d}"
    return count_of(
        Bundle(folder / file).array(block.key)
        for file, blocks in manifest.files.items()
        for block in blocks
        if block.tensor != "optimizer/learning_rate"
    )


def _snapshot_of(model: keras.Model, folder: Path) -> ModelSnapshot:
    """The snapshot of a model that a manager in this folder would take."""
    return ModelSnapshot(model, SharedFolder(Folder(folder), None))


@pytest.fixture
def model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        return counting_model()


class HeldSave:
    """Keeps a save from writing until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        write = Snapshot.write

        def held(snapshot: Snapshot, folder: Path) -> Any:
            self.begun.set()
            assert self.go.wait(60)
            return write(snapshot, folder)

        patch.setattr(Snapshot, "write", held)


# A quicker one is test_restore.py.
@pytest.mark.repeats
@pytest.mark.parametrize(
    ("shared", "slots"), [(None, True), (False, False)], ids=["shared", "streamed"]
)
def test_training_goes_on_while_values_of_one_version_are_written(
    shared: bool | None,
    slots: bool,
    strategy: tfps.ParameterServerStrategy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TFPS_CHUNK_BYTES", "100000")
    with strategy.scope():
        model = counting_model(slots=slots)
    manager = tfps.CheckpointManager(model, tmp_path, shared=shared)
    held = HeldSave(monkeypatch)
    updates: list[int] = []

    class SaveOnce(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            updates.append(strategy.stats().updates_applied)
            if epoch == 0:
                manager.save(epoch=1)
            if epoch == 2:  # the servers have changed every number twice since
                assert held.begun.wait(60)
                assert manager.latest is None
                held.go.set()

    model.fit(DATA, DATA, batch_size=4, epochs=3, verbose=0, callbacks=[SaveOnce()])
    manager.wait()
    assert updates[2] == updates[0] + 200
    (manifest,) = manager.checkpoints
    assert _stored_count(manager, manifest) == 100
    assert updates_of(model) == 300
    assert manifest.counters is not None
    assert manifest.counters.versions == (updates[0],) * 2
    assert manager.last_pause_s is not None


@pytest.mark.slow
def test_the_callback_saves_in_the_middle_of_epochs(
    model: keras.Model, strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """Workers run freely: training is not in lock-step."""
    manager = tfps.CheckpointManager(model, tmp_path, keep=KeepLatest(100))
    callback = tfps.callbacks.Checkpoint(manager, every_steps=40)
    before = strategy.stats().updates_applied
    model.fit(DATA, DATA, batch_size=4, epochs=2, verbose=0, callbacks=[callback])
    assert not model.train_function.hooks.must_wait
    found = manager.checkpoints
    assert [manifest.step for manifest in found] == [40, 80, 120, 160, 200]
    assert [manifest.epoch for manifest in found] == [0, 0, 1, 1, 1]
    for manifest in found:
        assert manifest.counters is not None
        count = manifest.counters.versions[0] - before
        assert _stored_count(manager, manifest) == count
        assert count >= manifest.step  # type: ignore[operator]
    assert updates_of(model) == 200


@pytest.mark.rare
def test_the_servers_forget_what_was_written(
    model: keras.Model, strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """And a strategy that is closed waits for the save under way."""
    model.fit(DATA, DATA, batch_size=4, verbose=0)
    manager = tfps.CheckpointManager(model, tmp_path)
    manager.save(background=False)
    with contextlib.closing(_snapshot_of(model, tmp_path)) as again:  # of the same names
        for part in again.current()[1].parts:
            with pytest.raises(Exception, match="snapshot_"):
                part.write(tmp_path)
    manager.save()
    strategy.runtime.dependents.add(manager)
    manager.close()
    assert [manifest.number for manifest in manager.checkpoints] == [1, 2]
    assert not list(tmp_path.glob("writing-*"))


@pytest.mark.rare
def test_attempts_that_arrive_late_do_nothing(
    model: keras.Model, strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """A call that a busy server has not answered is repeated; the first may come in the end."""
    manager = tfps.CheckpointManager(model, tmp_path)
    model.fit(DATA[:4], DATA[:4], batch_size=4, verbose=0)
    manager.save(background=False)
    with contextlib.closing(_snapshot_of(model, tmp_path)) as kept:
        contents, snapshot = kept.current()
        snapshot.take()
        model.fit(DATA[:4], DATA[:4], batch_size=4, verbose=0)
        for part in snapshot.parts:
            part.take(1)
        (tmp_path / "late").mkdir()
        files = snapshot.write(tmp_path / "late")
        snapshot.free()
    arrays = [Bundle(tmp_path / "late" / f).array(b.key) for f, bs in files.items() for b in bs]
    assert set(np.concatenate([array.ravel() for array in arrays]).tolist()) == {-1.0, 1.0}
    servers = strategy.runtime.servers
    with open_channels(servers) as channels:
        with open_restores(servers, channels=channels, shared=[True, True]) as parts:
            pass
        fill(contents, manager.checkpoints[0], tmp_path / "checkpoint-000001", servers=parts)
        version = strategy.runtime.ticket_server.layout.VERSION
        parts[0].write_cells({version: 10**6})
    assert updates_of(model) == 2
    assert strategy.stats().versions[0] < 10**6
    manager.restore_latest()
    assert updates_of(model) == 1


@pytest.mark.repeats
def test_a_custom_loop(
    model: keras.Model, strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """A save waits for what was scheduled."""
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)

    @tf.function
    def step() -> None:
        model.optimizer.apply([tf.ones(v.shape) for v in model.trainable_variables])

    for _ in range(30):
        strategy.coordinator.schedule(step)
    manager = tfps.CheckpointManager(model, tmp_path)
    manager.save(step=30)
    for _ in range(10):
        strategy.coordinator.schedule(step)
    strategy.coordinator.join()
    assert updates_of(model) == 40
    manager.restore_latest()
    assert updates_of(model) == 30
    strategy.coordinator.schedule(step)
    strategy.coordinator.join()
    assert updates_of(model) == 31
